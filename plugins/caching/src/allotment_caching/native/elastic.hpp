// The policy "elastic". The twin of engine/elastic.py, which says why things are as they are.
#pragma once

#include "growth.hpp"
#include "policy.hpp"

namespace allotment {

struct ElasticSettings {
    std::uint64_t total = 0, limit = 0, cache_limit = 0;
    double idle_seconds = 0;  // 0: never
};

class ElasticPolicy {
  public:
    using Item = Block;

    ElasticPolicy(const SupplyCalls &calls, const ElasticSettings &settings)
        : limit(settings.limit), cache_limit(settings.cache_limit), supply_(calls), settings_(settings), next_look_(supply_.now() + settings.idle_seconds) {}

    SpinLock lock;  // held while blocks change hands
    std::atomic<std::uint64_t> limit, cache_limit;  // of what is held, and of what of it is idle

    // With the lock: blocks that are at hand.

    Block *take_cached(std::uint64_t size, Handle stream, std::int64_t pool) {
        Heap *heap = find(stream, pool);
        Block *block = heap == nullptr ? nullptr : heap->take_recent(round_up(size, ALIGNMENT));
        return block == nullptr ? nullptr : hand_out(block);
    }

    void give(Block *block) {
        allocated_ -= block->nbytes;
        recycle(block);
    }

    static constexpr bool is_due() { return false; }
    static Handle stream_of(const Block *block) { return block->heap->stream; }

    // Without the lock, and without the interpreter's.

    Block *take(std::uint64_t size, Handle stream, std::int64_t pool);
    void give_after(Block *block, const std::vector<Handle> &users);
    void look_around();
    void trim(std::uint64_t keep);
    void release_pool(std::int64_t pool);
    void share(int ordinal, bool enable);
    Figures figures();
    void reset_peak();
    std::uint64_t get_limit() const { return limit; }
    std::uint64_t get_cache_limit() const { return cache_limit; }
    void set_limit(std::uint64_t nbytes) { limit = nbytes; }
    void set_cache_limit(std::uint64_t nbytes) { cache_limit = nbytes; }
    void watch(Handle stream) { supply_.watch(stream); }
    void discard(void *error) { supply_.discard(error); }

  private:
    struct Pending {
        Block *block;
        std::vector<Mark> marks;
    };
    struct HeapKey {
        Handle stream;
        std::int64_t pool;
    };
    using Guard = std::lock_guard<SpinLock>;
    enum Effort { AT_ONCE, WAIT, GIVE_BACK };

    Heap *find(Handle stream, std::int64_t pool) {
        if (latest_ != nullptr && latest_key_.stream == stream && latest_key_.pool == pool) return latest_;
        for (auto &[key, heap] : heaps_) {
            if (key.stream == stream && key.pool == pool) {
                latest_ = heap.get();
                latest_key_ = key;
                return latest_;
            }
        }
        return nullptr;
    }
    Heap &find_or_make(Handle stream, std::int64_t pool);

    Block *hand_out(Block *block) {
        block->state = State::USED;
        ++block->heap->used;
        allocated_ += block->nbytes;
        least_idle_ = std::min(least_idle_, reserved_ - allocated_);
        return block;
    }
    void recycle(Block *block) {
        --block->heap->used;
        block->heap->keep_recent(block);
    }

    void settle();
    void look_at(Pending &pending);
    bool is_past(Mark mark);
    void forget_mark(Mark mark);
    void drop_marks();

    Block *take_grown(Heap &heap, std::uint64_t nbytes);
    Block *grow(Heap &heap, std::uint64_t nbytes, Effort effort);
    Growth plan(Heap &heap, std::uint64_t nbytes, Effort effort);
    Block *back(Growth &growth);
    void look_for_quiet(const std::vector<Heap *> &heaps);
    std::uint64_t chunk_size() const;
    void require(std::uint64_t missing) const;
    void hold(std::uint64_t nbytes);
    void let_go(std::uint64_t nbytes) { reserved_ -= nbytes; }

    void let_leave();
    bool may_leave(Heap &heap, Leaving &leaving);
    void leave(Leaving &leaving);
    void wait();
    void give_back(std::uint64_t keep);
    void free_segments(const std::vector<Heap *> &heaps, std::uint64_t keep);
    void drop_empty_heaps(const Heap *needed = nullptr);
    void add_region(Heap &heap, std::uint64_t nbytes);
    Block *take_segment(Heap &heap, std::uint64_t nbytes);
    std::vector<Heap *> all_heaps();

    Supply supply_;
    ElasticSettings settings_;
    Turn turn_;
    BlockStore store_;
    std::vector<std::pair<HeapKey, std::unique_ptr<Heap>>> heaps_;  // in the order they were made
    Heap *latest_ = nullptr;
    HeapKey latest_key_{};
    std::vector<Pending> pending_;
    std::vector<Mark> unwanted_;  // to be dropped
    std::vector<Region> unused_;  // addresses to be given back
    std::atomic<std::uint64_t> reserved_{0}, peak_{0};
    std::uint64_t allocated_ = 0;
    std::uint64_t made_ = 0, lent_ = 0;  // memory made, and moved from one stream's heap to another's, in all
    std::uint64_t least_idle_ = 0;  // at any time since the last look
    std::atomic<double> next_look_;
};

}  // namespace allotment
