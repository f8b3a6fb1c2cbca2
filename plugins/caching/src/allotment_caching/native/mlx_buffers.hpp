// What the policy "mlx" keeps: buffers, whose they are, and the shelves where idle ones wait in the order of age. The
// twin of engine/mlx_buffers.py.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>
#include <vector>

#include "supply.hpp"

namespace allotment::mlx {

constexpr std::uint64_t PAGE = 16 * 1024;
constexpr std::uint64_t SCALAR = 8;
constexpr std::uint64_t SLOTS = 4 * PAGE / SCALAR;
constexpr int MANAGED = -1;
constexpr double NEVER = std::numeric_limits<double>::infinity();

enum class Kind : std::uint8_t { ORDERED, SEGMENT, MANAGED, SLOT };

struct Account {
    Account(const SupplyCalls &calls, int device) : supply(calls), device(device) {}

    Supply supply;
    int device;
    std::uint64_t reserved = 0, peak = 0, allocated = 0;

    void hold(std::uint64_t nbytes) {
        reserved += nbytes;
        peak = std::max(peak, reserved);
    }
    void let_go(std::uint64_t nbytes) { reserved -= nbytes; }
};

struct Line {
    Account *account;
    Handle stream;
    std::int64_t made_for;  // the pool it was made for, by which it is found
    std::int64_t pool;      // the pool it belongs to now
    std::uint64_t buffers = 0, frees = 0, quiet = 0, marked = 0;
    Mark mark = PAST;

    Line(Account *account, Handle stream, std::int64_t pool)
        : account(account), stream(stream), made_for(pool), pool(pool) {}
};

struct Buffer;

struct Links {
    Buffer *before = nullptr, *after = nullptr;
};

class BufferList;

struct Buffer {
    Address start = 0;
    std::uint64_t nbytes = 0;
    Account *maker = nullptr;
    Account *account = nullptr;
    Line *line = nullptr;  // of a slot in the slab, `nullptr` once the line is forgotten: its work is past
    std::uint64_t size = 0;
    std::uint64_t serial = 0;
    std::uint64_t age = 0;
    double since = NEVER;
    BufferList *shelf = nullptr;
    Links on_shelf, by_age;  // the latter also among those that leave
    int device = 0;
    Kind kind = Kind::ORDERED;
    bool is_booked = false;
    std::vector<Handle> users;

    bool is_past() const { return line == nullptr || serial <= line->quiet; }

    void move_to(Line *other) {
        --line->buffers;
        ++other->buffers;
        line = other;
    }

    bool give_back() {
        if (kind != Kind::ORDERED) {
            maker->supply.free(start);
        } else if (maker->supply.may_free(line->stream)) {
            maker->supply.free_async(start, line->stream);
        } else {
            return false;
        }
        return true;
    }
};

// Buffers in the order in which they came.
class BufferList {
  public:
    explicit BufferList(Links Buffer::*links) : links_(links) {}

    Buffer *first() const { return first_; }
    Buffer *last() const { return last_; }
    Buffer *after(const Buffer *buffer) const { return (buffer->*links_).after; }
    Buffer *before(const Buffer *buffer) const { return (buffer->*links_).before; }

    void add(Buffer *buffer) {
        buffer->*links_ = {last_, nullptr};
        (last_ == nullptr ? first_ : (last_->*links_).after) = buffer;
        last_ = buffer;
    }

    void remove(Buffer *buffer) {
        auto [before, after] = buffer->*links_;
        (before == nullptr ? first_ : (before->*links_).after) = after;
        (after == nullptr ? last_ : (after->*links_).before) = before;
    }

    std::vector<Buffer *> all() const {
        std::vector<Buffer *> buffers;
        for (Buffer *buffer = first_; buffer != nullptr; buffer = after(buffer)) buffers.push_back(buffer);
        return buffers;
    }

  private:
    Links Buffer::*links_;
    Buffer *first_ = nullptr, *last_ = nullptr;
};

// Buffers that are gone are kept for the next ones.
class BufferStore {
  public:
    Buffer *make() {
        if (idle_.empty()) return &buffers_.emplace_back();
        Buffer *buffer = idle_.back();
        idle_.pop_back();
        return buffer;
    }
    void drop(Buffer *buffer) {
        *buffer = Buffer{};
        idle_.push_back(buffer);
    }

  private:
    std::deque<Buffer> buffers_;
    std::vector<Buffer *> idle_;
};

inline std::uint64_t round_size(std::uint64_t size) {
    if (size <= SCALAR) return size == 0 ? 0 : SCALAR;
    if (size >= PAGE) return (size + PAGE - 1) / PAGE * PAGE;
    std::uint64_t rounded = 2 * SCALAR;
    while (rounded < size) rounded *= 2;
    return rounded;
}

class Shelves {
  public:
    Shelves(bool are_of_any_device, bool are_of_any_stream)
        : any_device_(are_of_any_device), any_stream_(are_of_any_stream) {}

    std::uint64_t nbytes = 0;

    const BufferList &by_age() const { return by_age_; }

    void add(Buffer *buffer) {
        buffer->age = ++added_;
        buffer->since = NEVER;
        auto key = key_of(buffer->nbytes, buffer->device, buffer->line);
        buffer->shelf = &shelves_.try_emplace(key, &Buffer::on_shelf).first->second;
        buffer->shelf->add(buffer);
        by_age_.add(buffer);
        nbytes += buffer->nbytes;
    }

    void remove(Buffer *buffer) {
        buffer->shelf->remove(buffer);
        by_age_.remove(buffer);
        nbytes -= buffer->nbytes;
    }

    Buffer *first(std::uint64_t size, int device, Line *line) const {
        auto shelf = shelves_.find(key_of(size, device, line));
        return shelf == shelves_.end() ? nullptr : shelf->second.first();
    }

    Buffer *first_fitting(std::uint64_t size, int device, Line *line) const {
        Buffer *buffer = first(size, device, line);
        return buffer == nullptr && size > PAGE ? first(size + PAGE, device, line) : buffer;
    }

    std::vector<Buffer *> victims(std::uint64_t size) const {
        if (static_cast<double>(size) >= 0.9 * static_cast<double>(nbytes)) return in_order_of_size();
        std::vector<Buffer *> victims;
        std::uint64_t found = 0;
        for (Buffer *buffer = by_age_.first(); buffer != nullptr && found < size; buffer = by_age_.after(buffer)) {
            victims.push_back(buffer);
            found += buffer->nbytes;
        }
        return victims;
    }

    std::vector<Buffer *> in_order_of_size() const {
        std::vector<Buffer *> buffers = by_age_.all();
        std::stable_sort(buffers.begin(), buffers.end(), [](auto *a, auto *b) { return a->nbytes < b->nbytes; });
        return buffers;
    }

    std::vector<Buffer *> idle_since(double now, double since) const {
        for (Buffer *buffer = by_age_.last(); buffer != nullptr; buffer = by_age_.before(buffer)) {
            if (buffer->since != NEVER) break;
            buffer->since = now;
        }
        std::vector<Buffer *> idle;
        for (Buffer *buffer = by_age_.first(); buffer != nullptr; buffer = by_age_.after(buffer)) {
            if (buffer->since > since) break;
            idle.push_back(buffer);
        }
        return idle;
    }

    // Shelves stay when they become empty, for the next buffer of their size, until this.
    void drop_empty() {
        for (auto shelf = shelves_.begin(); shelf != shelves_.end();) {
            shelf = shelf->second.first() == nullptr ? shelves_.erase(shelf) : std::next(shelf);
        }
    }

  private:
    struct Key {
        std::uint64_t nbytes;
        Line *line;
        int device;
        bool operator==(const Key &other) const {
            return nbytes == other.nbytes && line == other.line && device == other.device;
        }
    };
    struct Hash {
        std::size_t operator()(const Key &key) const {
            std::uint64_t mixed = key.nbytes ^ (reinterpret_cast<std::uintptr_t>(key.line) << 7);
            return static_cast<std::size_t>((mixed + static_cast<std::uint64_t>(key.device)) * 0x9E3779B97F4A7C15ull >> 16);
        }
    };

    Key key_of(std::uint64_t size, int device, Line *line) const {
        return {size, any_stream_ ? nullptr : line, any_device_ ? 0 : device};
    }

    bool any_device_, any_stream_;
    std::unordered_map<Key, BufferList, Hash> shelves_;
    BufferList by_age_{&Buffer::by_age};
    std::uint64_t added_ = 0;
};

class Slab {
  public:
    Slab(Account *account, Address start, std::uint64_t alignment)
        : account(account), start(start), nbytes(SLOTS * alignment), alignment_(alignment) {}

    Account *account;
    Address start;
    std::uint64_t nbytes;

    bool is_whole() const { return returned_.size() == fresh_; }

    void put(Buffer *buffer) {
        --buffer->line->buffers;
        returned_.push_back(buffer);
    }

    Buffer *take(Line *line, bool is_any_past, BufferStore &store) {
        for (std::size_t index = returned_.size(); index-- > 0;) {
            Buffer *buffer = returned_[index];
            if (!is_any_past && buffer->line != line && !buffer->is_past()) continue;
            returned_.erase(returned_.begin() + static_cast<std::ptrdiff_t>(index));
            buffer->line = line;
            buffer->serial = 0;
            ++line->buffers;
            return buffer;
        }
        if (fresh_ == SLOTS) return nullptr;
        Buffer *buffer = store.make();
        buffer->start = start + fresh_++ * alignment_;
        buffer->nbytes = SCALAR;
        buffer->device = MANAGED;
        buffer->kind = Kind::SLOT;
        buffer->maker = buffer->account = account;
        buffer->line = line;
        ++line->buffers;
        return buffer;
    }

    std::vector<Line *> lines_in_flight() const {
        std::vector<Line *> lines;
        for (Buffer *buffer : returned_) {
            if (buffer->is_past() || std::find(lines.begin(), lines.end(), buffer->line) != lines.end()) continue;
            lines.push_back(buffer->line);
        }
        return lines;
    }

    // A line goes, with all work on it past.
    void forget(const Line *line) {
        for (Buffer *buffer : returned_) {
            if (buffer->line == line) buffer->line = nullptr;
        }
    }

    void drop_slots(BufferStore &store) {
        for (Buffer *buffer : returned_) store.drop(buffer);
    }

  private:
    std::uint64_t alignment_;
    std::uint64_t fresh_ = 0;
    std::vector<Buffer *> returned_;
};

}  // namespace allotment::mlx
