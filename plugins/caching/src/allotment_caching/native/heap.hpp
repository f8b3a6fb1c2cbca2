// The addresses of one stream: which blocks are free, and where memory is behind them. The twin of engine/heap.py.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "supply.hpp"

namespace allotment {

constexpr std::uint64_t ALIGNMENT = 512;

inline std::uint64_t round_up(std::uint64_t nbytes, std::uint64_t multiple) {
    return (nbytes + multiple - 1) / multiple * multiple;
}

enum class State : std::uint8_t { USED, RECENT, FREE, PENDING, HOLE, STALE };

class Heap;

struct Block {
    Address start = 0;
    std::uint64_t nbytes = 0;
    Heap *heap = nullptr;
    Block *before = nullptr;
    Block *after = nullptr;
    std::uint64_t size = 0;    // what was asked for, while it is handed out
    std::uint64_t serial = 0;  // the heap's count of frees when it became free
    State state = State::USED;
    bool is_booked = false;
    Block *freed_before = nullptr;  // of the same size, while its state is RECENT
    std::vector<Handle> users;  // other streams that work on it

    Address end() const { return start + nbytes; }
};

// Blocks come and go with every split and join; they are kept for the next one.
class BlockStore {
  public:
    Block *make() {
        if (idle_.empty()) {
            slabs_.emplace_back(new Block[SLAB]);
            for (std::size_t i = SLAB; i-- > 0;) idle_.push_back(&slabs_.back()[i]);
        }
        Block *block = idle_.back();
        idle_.pop_back();
        return block;
    }
    void drop(Block *block) {
        *block = Block{};
        idle_.push_back(block);
    }

  private:
    static constexpr std::size_t SLAB = 256;
    std::vector<std::unique_ptr<Block[]>> slabs_;
    std::vector<Block *> idle_;
};

// Memory that is mapped as a whole.
struct Chunk {
    std::uint64_t nbytes;
    Heap *heap;
    Address start;
};

// Memory that leaves addresses once the work before a mark is done; it is given back then, unless `handle` is 0.
struct Leaving {
    Mark mark;
    Block *block;
    std::uint64_t nbytes;
    Handle handle;
};

struct Region {
    Block *first;
    std::uint64_t nbytes;
    Address start;
};

class Heap {
  public:
    Heap(BlockStore &store, Handle stream, std::int64_t pool) : stream(stream), pool(pool), store_(store) {}

    const Handle stream;
    std::int64_t pool;
    std::vector<Region> regions;
    std::map<Address, std::pair<std::uint64_t, Handle>> chunks;  // what is mapped: size and handle by start
    std::vector<Leaving> leaving;
    std::uint64_t used = 0;          // blocks handed out or pending
    std::uint64_t stale = 0;         // blocks of addresses that wait until what is still behind them leaves
    std::uint64_t frees = 0;         // a count of them
    std::uint64_t quiet = 0;         // frees up to this count are past
    Mark mark = PAST;                // on the stream,
    std::uint64_t marked = 0;        // and the count of frees when it was set

    // Taking and giving

    Block *take_recent(std::uint64_t nbytes) {
        Block *&latest = latest_of(nbytes);
        Block *block = latest;
        if (block == nullptr) return nullptr;
        latest = block->freed_before;
        --recent_count_;
        return block;
    }

    Block *take_fitting(std::uint64_t nbytes) {
        int order = bit_length(nbytes);
        if (order >= ORDERS) return nullptr;
        Block *block = nullptr;
        for (auto &entry : free_[order]) {
            if (entry.second->nbytes < nbytes) continue;
            block = entry.second;
            break;
        }
        for (std::uint64_t larger = orders_ & (~std::uint64_t{0} << 1 << order); larger != 0; larger &= larger - 1) {
            Block *first = free_[lowest_bit(larger)].begin()->second;
            if (block == nullptr || first->start < block->start) block = first;
        }
        if (block == nullptr) return nullptr;
        remove(block);
        block->state = State::USED;
        cut(block, nbytes, State::FREE);
        return block;
    }

    void keep_recent(Block *block) {
        block->state = State::RECENT;
        block->serial = ++frees;
        Block *&latest = latest_of(block->nbytes);
        if (latest == nullptr) recent_sizes_.push_back(block->nbytes);
        block->freed_before = latest;
        latest = block;
        ++recent_count_;
    }

    void join_recent() {
        for (std::uint64_t nbytes : recent_sizes_) {
            Block *&latest = latest_of(nbytes);
            for (Block *block = std::exchange(latest, nullptr); block != nullptr;) {
                Block *before = block->freed_before;
                put(block, State::FREE);
                block = before;
            }
        }
        recent_sizes_.clear();
        recent_count_ = 0;
    }

    // Blocks

    Block *put(Block *block, State state) {
        block->state = state;
        if (block->before != nullptr && block->before->state == state) {
            Block *before = block->before;
            remove(before);
            block = absorb(before, block);
        }
        if (block->after != nullptr && block->after->state == state) {
            remove(block->after);
            absorb(block, block->after);
        }
        add(block);
        return block;
    }

    void cut(Block *block, std::uint64_t nbytes, State state) {
        if (block->nbytes > nbytes) put(split(block, nbytes), state);
    }

    Block *carve(Block *block, Address start, std::uint64_t nbytes) {
        remove(block);
        State state = block->state;
        if (start > block->start) {
            Block *part = split(block, start - block->start);
            add(block);
            block = part;
        }
        block->state = State::USED;
        cut(block, nbytes, state);
        return block;
    }

    Block *absorb(Block *block, Block *after) {
        block->nbytes += after->nbytes;
        if (after->serial > block->serial) block->serial = after->serial;
        block->after = after->after;
        if (block->after != nullptr) block->after->before = block;
        store_.drop(after);
        return block;
    }

    void leave(Block *block) {
        block->state = State::STALE;
        ++stale;
    }

    void put_back(Block *block, State state) {
        --stale;
        put(block, state);
    }

    Block *add_region(Address start, std::uint64_t nbytes) {
        Block *block = store_.make();
        block->start = start;
        block->nbytes = nbytes;
        block->heap = this;
        regions.push_back({block, nbytes, start});
        return block;
    }

    // `found` is false if there is none.
    Region take_idle_region(bool &found) {
        for (std::size_t i = 0; i < regions.size(); ++i) {
            Block *first = regions[i].first;
            bool is_whole = first->state == State::FREE && first->nbytes == regions[i].nbytes;
            if (is_whole && first->serial <= quiet) {
                Region region = regions[i];
                remove(first);
                first->state = State::USED;
                regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(i));
                found = true;
                return region;
            }
        }
        found = false;
        return {};
    }

    void put_back_region(const Region &region) {
        regions.push_back(region);
        put(region.first, State::FREE);
    }

    bool is_empty() const {
        return used == 0 && stale == 0 && chunks.empty() && leaving.empty() && recent_count_ == 0 && orders_ == 0;
    }
    const std::map<Address, Block *> &holes() const { return holes_; }
    std::uint64_t largest_free() const {
        std::uint64_t largest = 0;
        for (auto &blocks : free_) {
            for (auto &entry : blocks) largest = std::max(largest, entry.second->nbytes);
        }
        return largest;
    }
    void drop(Block *block) { store_.drop(block); }

    // What is mapped

    void add_chunk(Address start, std::uint64_t nbytes, Handle handle) { chunks[start] = {nbytes, handle}; }

    void idle_chunks(std::uint64_t past, std::vector<Chunk> &found) {
        for (Block *block : free_blocks()) {
            if (block->serial > past) continue;
            for (auto chunk = chunks.lower_bound(block->start); chunk != chunks.end(); ++chunk) {
                if (chunk->first + chunk->second.first > block->end()) break;
                found.push_back({chunk->second.first, this, chunk->first});
            }
        }
    }

    struct Taken {
        Address start;
        Block *block;
        Handle handle;
    };

    void take_chunks(const std::unordered_set<Address> &starts, std::vector<Taken> &taken) {
        if (starts.empty()) return;
        for (Block *block : free_blocks()) {
            Address end = block->end();
            Block *rest = block;
            auto chunk = chunks.lower_bound(block->start);
            while (chunk != chunks.end() && chunk->first + chunk->second.first <= end) {
                if (starts.count(chunk->first) == 0) {
                    ++chunk;
                    continue;
                }
                auto [nbytes, handle] = chunk->second;
                Address start = chunk->first;
                chunk = chunks.erase(chunk);
                Block *part = carve(rest, start, nbytes);
                leave(part);
                taken.push_back({start, part, handle});
                if (part->after != nullptr) rest = part->after;
            }
        }
    }

  private:
    static constexpr int ORDERS = 64;  // no block has a size of more than 63 bits

    static int bit_length(std::uint64_t nbytes) {
        int length = 0;
        for (; nbytes != 0; nbytes >>= 1) ++length;
        return length;
    }
    static int lowest_bit(std::uint64_t bits) { return bit_length(bits & (~bits + 1)) - 1; }

    std::vector<Block *> free_blocks() const {
        std::vector<Block *> found;
        for (auto &blocks : free_) {
            for (auto &entry : blocks) found.push_back(entry.second);
        }
        return found;
    }

    void add(Block *block) {
        if (block->state == State::FREE) {
            int order = bit_length(block->nbytes);
            free_[order][block->start] = block;
            orders_ |= std::uint64_t{1} << order;
        } else {
            holes_[block->start] = block;
        }
    }

    void remove(Block *block) {
        if (block->state == State::FREE) {
            int order = bit_length(block->nbytes);
            free_[order].erase(block->start);
            if (free_[order].empty()) orders_ &= ~(std::uint64_t{1} << order);
        } else {
            holes_.erase(block->start);
        }
    }

    Block *split(Block *block, std::uint64_t nbytes) {
        Block *rest = store_.make();
        rest->start = block->start + nbytes;
        rest->nbytes = block->nbytes - nbytes;
        rest->heap = this;
        rest->before = block;
        rest->after = block->after;
        rest->serial = block->serial;
        if (block->after != nullptr) block->after->before = rest;
        block->after = rest;
        block->nbytes = nbytes;
        return rest;
    }

    // The latest freed block of a size. Small sizes have places of their own.
    Block *&latest_of(std::uint64_t nbytes) {
        std::uint64_t units = nbytes / ALIGNMENT;
        return units < SMALL_UNITS ? small_[units] : large_[nbytes];
    }

    static constexpr std::uint64_t SMALL_UNITS = 2048;
    BlockStore &store_;
    std::vector<Block *> small_ = std::vector<Block *>(SMALL_UNITS);
    std::unordered_map<std::uint64_t, Block *> large_;
    std::vector<std::uint64_t> recent_sizes_;  // those that a block was kept of since they were last joined
    std::uint64_t recent_count_ = 0;
    // Free blocks by address, those with sizes of one bit length together, and a bit for each length that there is.
    std::array<std::map<Address, Block *>, ORDERS> free_;
    std::uint64_t orders_ = 0;
    std::map<Address, Block *> holes_;
};

}  // namespace allotment
