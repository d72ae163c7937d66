#include "models/cpu/page_store.h"

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"

namespace paceline::cpu {

constexpr int64_t kPage = KvCache::kPageSize;

absl::Status PageStore::Reserve(int64_t num_slots) {
  const int64_t size = num_slots * num_groups_ * head_dim_;
  try {
    for (auto* store : {&keys_, &values_}) {
      for (std::vector<uint16_t>& layer : *store) layer.resize(size);
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory: expected room for a cache of ", num_slots, " positions, got none"));
  }
  return absl::OkStatus();
}

void PageStore::WriteKey(int32_t layer, int64_t slot, int32_t group, const uint16_t* key) {
  uint16_t* keys = keys_[layer].data() + Offset(slot / kPage, group) + slot % kPage;
  for (int64_t d = 0; d < head_dim_; ++d) keys[d * kPage] = key[d];
}

void PageStore::WriteValue(int32_t layer, int64_t slot, int32_t group, const uint16_t* value) {
  uint16_t* values = values_[layer].data() + Offset(slot / kPage, group);
  std::memcpy(values + slot % kPage * head_dim_, value, head_dim_ * sizeof(uint16_t));
}

void PageStore::Gather(int32_t layer, int64_t slot, int32_t group, int64_t place, uint16_t* keys,
                       uint16_t* values) const {
  const uint16_t* from_keys = Keys(layer, slot / kPage, group);
  const uint16_t* from_values = Values(layer, slot / kPage, group);
  for (int64_t d = 0; d < head_dim_; ++d) keys[d * kPage + place] = from_keys[d * kPage + slot % kPage];
  std::memcpy(values + place * head_dim_, from_values + slot % kPage * head_dim_,
              head_dim_ * sizeof(uint16_t));
}

// One by one, in order: the contract says that no source is overwritten before it is read.
void PageStore::Copy(std::span<const SlotCopy> copies) {
  for (int32_t layer = 0; layer < static_cast<int32_t>(keys_.size()); ++layer) {
    for (const SlotCopy& copy : copies) {
      for (int32_t group = 0; group < num_groups_; ++group) {
        const int64_t to = Offset(copy.to / kPage, group);
        Gather(layer, copy.from, group, copy.to % kPage, keys_[layer].data() + to,
               values_[layer].data() + to);
      }
    }
  }
}

}  // namespace paceline::cpu
