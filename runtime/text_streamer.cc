#include "runtime/text_streamer.h"

#include <algorithm>
#include <utility>

namespace paceline {
namespace {

// Length of the longest ending of `text` that begins `stop`, shorter than `stop` itself.
size_t PartialStop(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

std::string TextStreamer::Deliver(size_t count) {
  std::string shown = held_.substr(0, count);
  held_.erase(0, count);
  text_ += shown;
  return shown;
}

std::string TextStreamer::Push(std::string_view piece) {
  if (stopped_) return "";
  held_ += decoder_.Push(piece);
  size_t stop_at = std::string::npos;
  size_t stop_end = std::string::npos;
  size_t keep = 0;
  for (const std::string& stop : stop_) {
    keep = std::max(keep, PartialStop(held_, stop));
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    // Complete first wins, so that the cut does not depend on how the text came in pieces.
    if (std::pair(at + stop.size(), at) < std::pair(stop_end, stop_at)) {
      stop_end = at + stop.size();
      stop_at = at;
    }
  }
  if (stop_at == std::string::npos) return Deliver(held_.size() - keep);
  stopped_ = true;
  std::string shown = Deliver(stop_at);
  held_.clear();
  return shown;
}

std::string TextStreamer::Finish() {
  if (stopped_) return "";
  held_ += decoder_.Flush();
  return Deliver(held_.size());
}

}  // namespace paceline
