// Keys and values of the fast engine's cache, as halves in pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/kv_cache.h"

namespace paceline::cpu {

// For each layer, page and group of heads: keys [D][P], so that a kernel scores the P positions of
// a page side by side, and values [P][D]. P is KvCache::kPageSize.
class PageStore : public KvStorage {
 public:
  PageStore(int32_t num_layers, int32_t num_groups, int32_t head_dim)
      : num_groups_(num_groups), head_dim_(head_dim), keys_(num_layers), values_(num_layers) {}

  absl::Status Reserve(int64_t num_slots) override;
  void Copy(std::span<const SlotCopy> copies) override;

  // A page's keys [D][P] and values [P][D] of one group.
  const uint16_t* Keys(int32_t layer, int64_t page, int32_t group) const {
    return keys_[layer].data() + Offset(page, group);
  }
  const uint16_t* Values(int32_t layer, int64_t page, int32_t group) const {
    return values_[layer].data() + Offset(page, group);
  }
  // Writes one position's key or value [D] of one group.
  void WriteKey(int32_t layer, int64_t slot, int32_t group, const uint16_t* key);
  void WriteValue(int32_t layer, int64_t slot, int32_t group, const uint16_t* value);
  // Copies one position's key and value of one group to place `place` of a page of one's own.
  void Gather(int32_t layer, int64_t slot, int32_t group, int64_t place, uint16_t* keys,
              uint16_t* values) const;

 private:
  int64_t Offset(int64_t page, int32_t group) const {
    return (page * num_groups_ + group) * head_dim_ * KvCache::kPageSize;
  }

  int32_t num_groups_;
  int32_t head_dim_;
  std::vector<std::vector<uint16_t>> keys_;
  std::vector<std::vector<uint16_t>> values_;
};

}  // namespace paceline::cpu
