#include "elastic.hpp"

namespace allotment {

namespace {

constexpr std::uint64_t MIB = std::uint64_t{1} << 20;
constexpr std::uint64_t LARGEST_CHUNK = 32 * MIB;
constexpr std::uint64_t CHUNKS_HELD = 128;
constexpr std::uint64_t SEGMENT_GRANULE = 2 * MIB;
constexpr std::uint64_t LENT_PER_MADE = 2;
constexpr std::uint64_t REGIONS_PER_DEVICE = 4;
constexpr std::int64_t RELEASED = -1;

std::uint64_t segment_size(std::uint64_t nbytes) {
    if (nbytes <= MIB) return 2 * MIB;
    if (nbytes <= 10 * MIB) return 20 * MIB;
    return round_up(nbytes, SEGMENT_GRANULE);
}

}  // namespace

// Blocks that other streams use

void ElasticPolicy::give_after(Block *block, const std::vector<Handle> &users) {
    std::vector<Mark> marks;
    try {
        for (Handle stream : users) marks.push_back(supply_.mark(stream));
    } catch (...) {
        for (Mark mark : marks) forget_mark(mark);
        throw;
    }
    Guard guard(lock);
    allocated_ -= block->nbytes;
    block->state = State::PENDING;
    block->users.clear();
    for (std::size_t i = 0; i < users.size(); ++i) {
        if (marks[i] == UNKNOWN) block->users.push_back(users[i]);
    }
    pending_.push_back({block, std::move(marks)});
}

void ElasticPolicy::settle() {
    drop_marks();
    std::vector<Pending> pending;
    {
        Guard guard(lock);
        pending.swap(pending_);
    }
    std::size_t looked_at = 0;
    auto put_back = [&] {
        Guard guard(lock);
        std::vector<Pending> waiting;
        for (std::size_t i = 0; i < pending.size(); ++i) {
            if (i < looked_at && pending[i].marks.empty()) {
                recycle(pending[i].block);
            } else {
                waiting.push_back(std::move(pending[i]));
            }
        }
        waiting.insert(waiting.end(), pending_.begin(), pending_.end());
        pending_.swap(waiting);
    };
    try {
        for (; looked_at < pending.size(); ++looked_at) look_at(pending[looked_at]);
    } catch (...) {
        put_back();
        throw;
    }
    put_back();
}

// Leave those marks of a pending block that are not past; those that could not be set are set now.
void ElasticPolicy::look_at(Pending &pending) {
    auto &marks = pending.marks;
    auto &users = pending.block->users;
    if (!users.empty()) {
        marks.erase(std::remove(marks.begin(), marks.end(), UNKNOWN), marks.end());
        for (Handle stream : users) marks.push_back(supply_.mark(stream));
        if (std::find(marks.begin(), marks.end(), UNKNOWN) == marks.end()) users.clear();
    }
    while (!marks.empty() && is_past(marks.back())) marks.pop_back();
}

bool ElasticPolicy::is_past(Mark mark) {
    if (mark == PAST) return true;
    if (mark == UNKNOWN || !supply_.is_past(mark)) return false;
    forget_mark(mark);
    return true;
}

// Let a mark be dropped at the next turn.
void ElasticPolicy::forget_mark(Mark mark) {
    Guard guard(lock);
    if (mark != PAST && mark != UNKNOWN) unwanted_.push_back(mark);
}

void ElasticPolicy::drop_marks() {
    for (;;) {
        Mark mark;
        {
            Guard guard(lock);
            if (unwanted_.empty()) return;
            mark = unwanted_.back();
            unwanted_.pop_back();
        }
        try {
            supply_.drop(mark);
        } catch (...) {
            forget_mark(mark);
            throw;
        }
    }
}

// Blocks that are not at hand

Block *ElasticPolicy::take(std::uint64_t size, Handle stream, std::int64_t pool) {
    std::uint64_t nbytes = round_up(size, ALIGNMENT);
    Turn::Holder holder(turn_);
    settle();
    let_leave();
    Heap *heap;
    {
        Guard guard(lock);
        heap = &find_or_make(stream, pool);
        heap->join_recent();
        if (Block *block = heap->take_fitting(nbytes)) return hand_out(block);
    }
    return take_grown(*heap, nbytes);
}

Heap &ElasticPolicy::find_or_make(Handle stream, std::int64_t pool) {
    if (Heap *heap = find(stream, pool)) return *heap;
    heaps_.emplace_back(HeapKey{stream, pool}, std::make_unique<Heap>(store_, stream, pool));
    return *heaps_.back().second;
}

Block *ElasticPolicy::take_grown(Heap &heap, std::uint64_t nbytes) {
    for (int effort = AT_ONCE;; ++effort) {
        if (effort == WAIT) wait();
        if (effort == GIVE_BACK) {
            give_back(0);
            drop_empty_heaps(&heap);  // of streams that are gone: even addresses can be used up
        }
        try {
            return grow(heap, nbytes, static_cast<Effort>(effort));
        } catch (const LimitError &) {
            if (effort == GIVE_BACK) throw;
        } catch (const SupplyError &failure) {
            if (effort == GIVE_BACK || !supply_.is_out_of_memory(failure.error)) throw;
            supply_.discard(failure.error);
        }
    }
}

Block *ElasticPolicy::grow(Heap &heap, std::uint64_t nbytes, Effort effort) {
    {
        Guard guard(lock);
        heap.join_recent();
        if (Block *block = heap.take_fitting(nbytes)) return hand_out(block);
    }
    if (supply_.granule() == 0) return take_segment(heap, nbytes);
    Growth growth = plan(heap, nbytes, effort);
    return back(growth);
}

// Memory that moves

Growth ElasticPolicy::plan(Heap &heap, std::uint64_t nbytes, Effort effort) {
    std::uint64_t granule = supply_.granule();
    std::vector<Heap *> others;
    for (Heap *other : all_heaps()) {
        if (other != &heap && other->pool <= 0) others.push_back(other);
    }
    look_for_quiet(others);
    Run run;
    bool is_chosen;
    {
        Guard guard(lock);
        is_chosen = choose_run(heap, nbytes, granule, run);
    }
    if (!is_chosen) add_region(heap, nbytes);
    Guard guard(lock);
    choose_run(heap, nbytes, granule, run);
    Growth growth(heap, nbytes, run, granule);
    if (heap.pool == 0) {
        growth.move_from(heap, heap.frees);
        std::uint64_t missing = growth.missing();
        if (effort != AT_ONCE || lent_ + missing <= LENT_PER_MADE * made_) {
            for (Heap *other : others) {
                other->join_recent();
                growth.move_from(*other, other->quiet);
            }
            lent_ += missing - growth.missing();
        }
    }
    return growth;
}

void ElasticPolicy::look_for_quiet(const std::vector<Heap *> &heaps) {
    for (Heap *heap : heaps) {
        std::uint64_t frees;
        {
            Guard guard(lock);
            frees = heap->frees;
        }
        if (heap->quiet == frees) continue;
        if (heap->mark == PAST) {
            heap->marked = frees;
            heap->mark = supply_.mark(heap->stream);
        }
        if (heap->mark == UNKNOWN) {
            heap->mark = PAST;
        } else if (is_past(heap->mark)) {
            heap->mark = PAST;
            heap->quiet = heap->marked;
        }
    }
}

Block *ElasticPolicy::back(Growth &growth) {
    std::vector<Fresh> fresh;
    std::vector<Piece> pieces, mapped;
    try {
        require(growth.missing());
        for (auto [hole, nbytes] : growth.fresh_sizes(chunk_size())) {
            Handle handle = supply_.create(nbytes);
            made_ += nbytes;
            hold(nbytes);
            fresh.push_back({hole, nbytes, handle});
        }
        pieces = growth.pieces(fresh);
        for (const Piece &piece : pieces) {
            supply_.map(piece.start, piece.nbytes, piece.handle);
            mapped.push_back(piece);
        }
        for (Block *hole : growth.holes) supply_.grant(hole->start, hole->nbytes);
        if (!growth.left.empty()) growth.left.front().mark = supply_.mark(growth.heap.stream);
    } catch (...) {
        Guard guard(lock);
        growth.undo(fresh, mapped);
        throw;
    }
    Guard guard(lock);
    auto &leaving = growth.heap.leaving;
    leaving.insert(leaving.end(), growth.left.begin(), growth.left.end());
    return hand_out(growth.commit(pieces));
}

std::uint64_t ElasticPolicy::chunk_size() const {
    std::uint64_t granule = supply_.granule(), share = reserved_ / CHUNKS_HELD / granule, chunk = granule;
    for (; share > 1; share /= 2) chunk *= 2;
    return std::max(granule, std::min(LARGEST_CHUNK, chunk));
}

void ElasticPolicy::require(std::uint64_t missing) const {
    if (reserved_ + missing > limit) throw LimitError{missing, reserved_, limit};
}

void ElasticPolicy::hold(std::uint64_t nbytes) {
    reserved_ += nbytes;
    if (reserved_ > peak_) peak_ = reserved_.load();
}

// Memory that leaves its addresses

void ElasticPolicy::let_leave() {
    for (Heap *heap : all_heaps()) {
        while (!heap->leaving.empty() && may_leave(*heap, heap->leaving.front())) {
            leave(heap->leaving.front());
            heap->leaving.erase(heap->leaving.begin());
        }
    }
}

bool ElasticPolicy::may_leave(Heap &heap, Leaving &leaving) {
    if (leaving.mark == UNKNOWN) leaving.mark = supply_.mark(heap.stream);
    if (!is_past(leaving.mark)) return false;
    leaving.mark = PAST;
    return true;
}

void ElasticPolicy::leave(Leaving &leaving) {
    if (leaving.block != nullptr) {
        supply_.unmap(leaving.block->start, leaving.block->nbytes);
        Guard guard(lock);
        leaving.block->heap->put_back(leaving.block, State::HOLE);
        leaving.block = nullptr;
    }
    if (leaving.handle != 0) {
        supply_.release(leaving.handle);
        let_go(leaving.nbytes);
        leaving.handle = 0;
    }
}

// Giving back

void ElasticPolicy::trim(std::uint64_t keep) {
    Turn::Holder holder(turn_);
    wait();
    give_back(keep);
    drop_empty_heaps();
    drop_marks();
}

void ElasticPolicy::look_around() {
    double now = supply_.now();
    bool is_time = settings_.idle_seconds != 0 && now >= next_look_;
    std::uint64_t excess, least_idle;
    {
        Guard guard(lock);
        std::uint64_t idle = reserved_ - allocated_;
        excess = idle > cache_limit ? idle - cache_limit : 0;
        least_idle = is_time ? least_idle_ : 0;
    }
    if (turn_.is_taken() || !(is_time || excess > 0)) return;
    Turn::Holder holder(turn_);
    settle();
    look_for_quiet(all_heaps());
    give_back(reserved_ - std::min<std::uint64_t>(reserved_, std::max(least_idle, excess)));
    if (!is_time) return;
    next_look_ = now + settings_.idle_seconds;
    drop_empty_heaps();
    Guard guard(lock);
    least_idle_ = reserved_ - allocated_;
}

void ElasticPolicy::wait() {
    std::vector<std::pair<Heap *, std::uint64_t>> frees;
    std::vector<Handle> streams;
    {
        Guard guard(lock);
        for (auto &[key, heap] : heaps_) {
            frees.push_back({heap.get(), heap->frees});
            streams.push_back(heap->stream);
        }
        for (const Pending &pending : pending_) {
            streams.insert(streams.end(), pending.block->users.begin(), pending.block->users.end());
        }
    }
    std::sort(streams.begin(), streams.end());
    streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
    std::unordered_set<Handle> done;
    for (Handle stream : streams) {
        if (supply_.synchronize(stream)) done.insert(stream);
    }
    for (auto [heap, count] : frees) {
        if (done.count(heap->stream) != 0) heap->quiet = count;
    }
    settle();
}

void ElasticPolicy::give_back(std::uint64_t keep) {
    std::vector<Heap *> heaps;
    for (Heap *heap : all_heaps()) {
        if (heap->pool <= 0) heaps.push_back(heap);
    }
    {
        Guard guard(lock);
        for (Heap *heap : heaps) heap->join_recent();
        if (supply_.granule() != 0 && reserved_ > keep) {
            std::vector<Chunk> chunks;
            for (Heap *heap : heaps) heap->idle_chunks(heap->quiet, chunks);
            std::stable_sort(chunks.begin(), chunks.end(), [](auto &a, auto &b) { return a.nbytes > b.nbytes; });
            std::vector<std::pair<Heap *, std::unordered_set<Address>>> chosen;
            auto excess = static_cast<std::int64_t>(reserved_ - keep);
            for (const Chunk &chunk : chunks) {
                if (excess <= 0) break;
                auto entry = std::find_if(chosen.begin(), chosen.end(), [&](auto &one) { return one.first == chunk.heap; });
                if (entry == chosen.end()) entry = chosen.insert(chosen.end(), {chunk.heap, {}});
                entry->second.insert(chunk.start);
                excess -= static_cast<std::int64_t>(chunk.nbytes);
            }
            for (auto &[heap, starts] : chosen) {
                std::vector<Heap::Taken> taken;
                heap->take_chunks(starts, taken);
                for (auto &item : taken) heap->leaving.push_back({PAST, item.block, item.block->nbytes, item.handle});
            }
        }
    }
    let_leave();
    if (supply_.granule() == 0) free_segments(heaps, keep);
}

void ElasticPolicy::free_segments(const std::vector<Heap *> &heaps, std::uint64_t keep) {
    for (Heap *heap : heaps) {
        while (reserved_ > keep) {
            bool found;
            Region region;
            {
                Guard guard(lock);
                region = heap->take_idle_region(found);
            }
            if (!found) break;
            try {
                supply_.free(region.start);
            } catch (...) {
                Guard guard(lock);
                heap->put_back_region(region);
                throw;
            }
            Guard guard(lock);
            heap->drop(region.first);
            let_go(region.nbytes);
        }
    }
}

void ElasticPolicy::drop_empty_heaps(const Heap *needed) {
    std::vector<std::unique_ptr<Heap>> empty;
    std::vector<Handle> unused;
    {
        Guard guard(lock);
        latest_ = nullptr;
        for (auto entry = heaps_.begin(); entry != heaps_.end();) {
            if (entry->second->is_empty() && entry->second.get() != needed) {
                empty.push_back(std::move(entry->second));
                entry = heaps_.erase(entry);
            } else {
                ++entry;
            }
        }
        for (auto &heap : empty) {
            bool is_used = std::any_of(heaps_.begin(), heaps_.end(), [&](auto &e) { return e.first.stream == heap->stream; });
            if (!is_used) unused.push_back(heap->stream);
            for (const Region &region : heap->regions) {
                if (supply_.granule() != 0) unused_.push_back(region);
                heap->drop(region.first);
            }
        }
    }
    for (auto &heap : empty) forget_mark(heap->mark);
    std::sort(unused.begin(), unused.end());
    unused.erase(std::unique(unused.begin(), unused.end()), unused.end());
    for (Handle stream : unused) supply_.forget(stream);
    while (!unused_.empty()) {
        supply_.unreserve(unused_.back().start, unused_.back().nbytes);
        unused_.pop_back();
    }
}

// Addresses, and memory that cannot move

void ElasticPolicy::add_region(Heap &heap, std::uint64_t nbytes) {
    std::uint64_t size = round_up(std::max(nbytes, settings_.total * REGIONS_PER_DEVICE), supply_.granule());
    Address start = supply_.reserve(size);
    Guard guard(lock);
    heap.put(heap.add_region(start, size), State::HOLE);
}

Block *ElasticPolicy::take_segment(Heap &heap, std::uint64_t nbytes) {
    std::uint64_t size = segment_size(nbytes);
    require(size);
    Address start = supply_.malloc(size);
    hold(size);
    Guard guard(lock);
    Block *block = heap.add_region(start, size);
    heap.cut(block, nbytes, State::FREE);
    return hand_out(block);
}

// Pools, other devices, figures

void ElasticPolicy::release_pool(std::int64_t pool) {
    Guard guard(lock);
    for (auto &[key, heap] : heaps_) {
        if (heap->pool == pool) heap->pool = RELEASED;
    }
}

void ElasticPolicy::share(int ordinal, bool enable) {
    Turn::Holder holder(turn_);
    std::vector<Address> starts;
    std::vector<std::uint64_t> sizes;
    for (Heap *heap : all_heaps()) {
        for (auto &[start, chunk] : heap->chunks) {
            starts.push_back(start);
            sizes.push_back(chunk.first);
        }
    }
    supply_.share(ordinal, starts, sizes, enable);
}

Figures ElasticPolicy::figures() {
    Guard guard(lock);
    Figures found{reserved_, peak_, allocated_, 0};
    for (auto &[key, heap] : heaps_) {
        heap->join_recent();
        found.largest_free = std::max(found.largest_free, heap->largest_free());
    }
    return found;
}

void ElasticPolicy::reset_peak() {
    Guard guard(lock);
    peak_ = reserved_.load();
}

std::vector<Heap *> ElasticPolicy::all_heaps() {
    Guard guard(lock);
    std::vector<Heap *> found;
    for (auto &entry : heaps_) found.push_back(entry.second.get());
    return found;
}

}  // namespace allotment
