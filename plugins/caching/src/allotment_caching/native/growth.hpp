// A growth: a block that needs memory behind addresses of its heap. The twin of engine/growth.py.
#pragma once

#include <algorithm>
#include <numeric>

#include "heap.hpp"

namespace allotment {

struct Run {
    std::vector<Block *> blocks;
    std::uint64_t missing = 0;
};

inline bool run_from(Block *first, std::uint64_t nbytes, std::uint64_t granule, Run &run) {
    run.blocks.clear();
    run.missing = 0;
    std::uint64_t found = 0;
    for (Block *block = first; found < nbytes; block = block->after) {
        if (block == nullptr || (block->state != State::FREE && block->state != State::HOLE)) return false;
        if (block->state == State::HOLE) run.missing += std::min(block->nbytes, round_up(nbytes - found, granule));
        run.blocks.push_back(block);
        found += block->nbytes;
    }
    return true;
}

// Neighbours that hold `nbytes` together and need the least memory behind them; the lowest of equal ones.
inline bool choose_run(const Heap &heap, std::uint64_t nbytes, std::uint64_t granule, Run &chosen) {
    bool is_chosen = false;
    Run run;
    for (const auto &entry : heap.holes()) {
        Block *hole = entry.second;
        Block *before = hole->before;
        Block *first = before != nullptr && before->state == State::FREE ? before : hole;
        if (!run_from(first, nbytes, granule, run)) continue;
        bool is_better = !is_chosen || run.missing < chosen.missing ||
                         (run.missing == chosen.missing && first->start < chosen.blocks.front()->start);
        if (is_better) {
            std::swap(chosen, run);
            is_chosen = true;
        }
    }
    return is_chosen;
}

struct Fresh {
    std::size_t hole;
    std::uint64_t nbytes;
    Handle handle;
};

struct Piece {
    std::size_t hole;
    Address start;
    std::uint64_t nbytes;
    Handle handle;
};

class Growth {
  public:
    Growth(Heap &heap, std::uint64_t nbytes, const Run &run, std::uint64_t granule) : heap(heap), nbytes_(nbytes) {
        for (Block *block : run.blocks) {
            std::uint64_t at_most = round_up(nbytes, granule);
            State state = block->state;
            heap.carve(block, block->start, state == State::FREE ? block->nbytes : std::min(block->nbytes, at_most));
            parts_.push_back({block, state});
            if (state == State::HOLE) {
                holes.push_back(block);
                room_.push_back(block->nbytes);
            }
            nbytes -= block->nbytes;
        }
    }

    Heap &heap;
    std::vector<Block *> holes;
    std::vector<Leaving> left;  // the addresses that moved memory leaves

    std::uint64_t missing() const { return std::accumulate(room_.begin(), room_.end(), std::uint64_t{0}); }

    void move_from(Heap &from, std::uint64_t past) {
        if (missing() == 0) return;
        std::vector<Chunk> chunks;
        from.idle_chunks(past, chunks);
        std::stable_sort(chunks.begin(), chunks.end(), [](auto &a, auto &b) { return a.nbytes > b.nbytes; });
        std::unordered_set<Address> chosen;
        for (const Chunk &chunk : chunks) {
            auto hole = std::find_if(room_.begin(), room_.end(), [&](auto room) { return room >= chunk.nbytes; });
            if (hole == room_.end()) continue;
            *hole -= chunk.nbytes;
            moved_.push_back({static_cast<std::size_t>(hole - room_.begin()), chunk, 0});
            chosen.insert(chunk.start);
        }
        std::vector<Heap::Taken> taken;
        from.take_chunks(chosen, taken);
        for (const Heap::Taken &item : taken) {
            auto moved = std::find_if(moved_.begin(), moved_.end(), [&](auto &one) {
                return one.chunk.heap == &from && one.chunk.start == item.start;
            });
            moved->handle = item.handle;
            moved->left = item.block;
            left.push_back({PAST, item.block, 0, 0});
        }
    }

    std::vector<std::pair<std::size_t, std::uint64_t>> fresh_sizes(std::uint64_t most) const {
        std::vector<std::pair<std::size_t, std::uint64_t>> sizes;
        for (std::size_t hole = 0; hole < room_.size(); ++hole) {
            for (std::uint64_t rest = room_[hole]; rest > 0; rest -= sizes.back().second) {
                sizes.push_back({hole, std::min(rest, most)});
            }
        }
        return sizes;
    }

    std::vector<Piece> pieces(const std::vector<Fresh> &fresh) const {
        std::vector<Address> ends;
        for (Block *hole : holes) ends.push_back(hole->start);
        std::vector<Piece> pieces;
        auto place = [&](std::size_t hole, std::uint64_t nbytes, Handle handle) {
            pieces.push_back({hole, ends[hole], nbytes, handle});
            ends[hole] += nbytes;
        };
        for (const Moved &moved : moved_) place(moved.hole, moved.chunk.nbytes, moved.handle);
        for (const Fresh &made : fresh) place(made.hole, made.nbytes, made.handle);
        return pieces;
    }

    Block *commit(const std::vector<Piece> &pieces) {
        for (const Piece &piece : pieces) heap.add_chunk(piece.start, piece.nbytes, piece.handle);
        Block *block = parts_.front().first;
        for (std::size_t i = 1; i < parts_.size(); ++i) heap.absorb(block, parts_[i].first);
        block->serial = heap.frees;  // work queued so far may still use what moved here
        heap.cut(block, nbytes_, State::FREE);
        return block;
    }

    // Put back what was taken; what was made or mapped already is left to be unmapped and given back.
    void undo(const std::vector<Fresh> &fresh, const std::vector<Piece> &mapped) {
        for (const Moved &moved : moved_) {
            moved.chunk.heap->add_chunk(moved.chunk.start, moved.chunk.nbytes, moved.handle);
            moved.chunk.heap->put_back(moved.left, State::FREE);
        }
        std::vector<std::uint64_t> filled(holes.size(), 0);
        for (const Piece &piece : mapped) filled[piece.hole] += piece.nbytes;
        for (std::size_t i = 0; i < holes.size(); ++i) {
            if (filled[i] == 0) continue;
            heap.cut(holes[i], filled[i], State::HOLE);
            heap.leave(holes[i]);
            heap.leaving.push_back({PAST, holes[i], 0, 0});
        }
        for (const Fresh &made : fresh) heap.leaving.push_back({PAST, nullptr, made.nbytes, made.handle});
        for (auto &[block, state] : parts_) {
            if (block->state == State::USED) heap.put(block, state);
        }
    }

  private:
    struct Moved {
        std::size_t hole;
        Chunk chunk;
        Handle handle;
        Block *left = nullptr;
    };

    std::uint64_t nbytes_;
    std::vector<std::pair<Block *, State>> parts_;
    std::vector<std::uint64_t> room_;
    std::vector<Moved> moved_;
};

}  // namespace allotment
