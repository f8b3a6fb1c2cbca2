// The blocks that are handed out, by address: open addressing, linear probing, no holes left by removal.
#pragma once

#include <vector>

#include "supply.hpp"

namespace allotment {

template <typename Item> class AddressTable {
  public:
    AddressTable() : slots_(64), mask_(63) {}

    std::size_t size() const { return count_; }

    Item *find(Address address) const {
        for (std::size_t i = home(address); slots_[i].item != nullptr; i = (i + 1) & mask_) {
            if (slots_[i].address == address) return slots_[i].item;
        }
        return nullptr;
    }

    void add(Address address, Item *item) {
        if (2 * (count_ + 1) > slots_.size()) grow();
        ++count_;
        place({address, item});
    }

    void remove(Address address) {
        std::size_t i = home(address);
        while (slots_[i].address != address) i = (i + 1) & mask_;
        --count_;
        for (std::size_t next = (i + 1) & mask_; slots_[next].item != nullptr; next = (next + 1) & mask_) {
            std::size_t wanted = home(slots_[next].address);
            if (((next - wanted) & mask_) >= ((next - i) & mask_)) {
                slots_[i] = slots_[next];
                i = next;
            }
        }
        slots_[i] = {};
    }

    template <typename Visitor> void visit(Visitor visitor) const {
        for (const Slot &slot : slots_) {
            if (slot.item != nullptr) visitor(slot.address, *slot.item);
        }
    }

  private:
    struct Slot {
        Address address = 0;
        Item *item = nullptr;
    };

    std::size_t home(Address address) const {
        return static_cast<std::size_t>(((address >> 3) * 0x9E3779B97F4A7C15ull) >> 20) & mask_;
    }

    void place(const Slot &slot) {
        std::size_t i = home(slot.address);
        while (slots_[i].item != nullptr) i = (i + 1) & mask_;
        slots_[i] = slot;
    }

    void grow() {
        std::vector<Slot> before(slots_.size() * 2);
        before.swap(slots_);
        mask_ = slots_.size() - 1;
        for (const Slot &slot : before) {
            if (slot.item != nullptr) place(slot);
        }
    }

    std::vector<Slot> slots_;
    std::size_t mask_;
    std::size_t count_ = 0;
};

}  // namespace allotment
