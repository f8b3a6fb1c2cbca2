#include "mlx.hpp"

namespace allotment::mlx {

namespace {

constexpr double MEMORY_SHARE = 0.95;

bool is_past(Supply &supply, Mark mark) {
    if (mark == PAST) return true;
    if (mark == UNKNOWN || !supply.is_past(mark)) return false;
    supply.drop(mark);
    return true;
}

}  // namespace

Cache::Cache(const Settings &settings)
    : settings(settings),
      shelves(settings.ignores_devices, settings.ignores_streams),
      private_shelves(false, false),
      memory_limit_(settings.memory_limit),
      cache_limit_(settings.cache_limit),
      head_room_(settings.total -
                 static_cast<std::uint64_t>(static_cast<double>(settings.total) * MEMORY_SHARE)) {}

// The interface of MLX

void Cache::reset_peak_memory() {
    Guard guard(lock);
    peak_ = settings.peak_falls_to_zero ? 0 : active_;
}

std::uint64_t Cache::set_memory_limit(std::uint64_t limit) {
    {
        Guard guard(lock);
        std::swap(limit, memory_limit_);
    }
    if (!settings.limits_wait) {
        Turn::Holder holder(turn);
        make_room(0);
    }
    return limit;
}

std::uint64_t Cache::set_cache_limit(std::uint64_t limit) {
    {
        Guard guard(lock);
        std::swap(limit, cache_limit_);
    }
    if (!settings.limits_wait) {
        Turn::Holder holder(turn);
        keep_within_limit();
    }
    return limit;
}

void Cache::clear_cache() {
    Turn::Holder holder(turn);
    evict([&] { return shelves.in_order_of_size(); });
}

// Buffers change hands: with the lock

Buffer *Cache::hand_out(Buffer *buffer, Line *line) {
    buffer->move_to(line);
    if (buffer->kind != Kind::SLOT && buffer->account != line->account) {
        buffer->account->let_go(buffer->nbytes);
        line->account->hold(buffer->nbytes);
        buffer->account = line->account;
    }
    buffer->account->allocated += buffer->nbytes;
    active_ += buffer->nbytes;
    peak_ = std::max(peak_, active_);
    return buffer;
}

void Cache::take_back(Buffer *buffer) {
    buffer->account->allocated -= buffer->nbytes;
    active_ -= buffer->nbytes;
}

void Cache::recycle(Buffer *buffer) {
    Line *line = buffer->line;
    buffer->serial = ++line->frees;
    if (line->pool != 0) {
        private_shelves.add(buffer);
    } else if (shelves.nbytes < cache_limit_) {
        shelves.add(buffer);
    } else {
        discard(buffer);
    }
}

void Cache::discard(Buffer *buffer) {
    if (buffer->kind == Kind::SLOT) {
        slab->put(buffer);
    } else {
        leaving_.add(buffer);
    }
}

Account *Cache::open_account(const SupplyCalls &calls, int device) {
    accounts_.push_back(std::make_unique<Account>(calls, device));
    return accounts_.back().get();
}

Line *Cache::find_line(Account *account, Handle stream, std::int64_t pool) {
    auto is_it = [&](const Line &line) {
        return line.stream == stream && line.made_for == pool && line.account == account;
    };
    if (latest_ != nullptr && is_it(*latest_)) return latest_;
    for (auto &line : lines_) {
        if (is_it(*line)) return latest_ = line.get();
    }
    return nullptr;
}

Line *Cache::line(Account *account, Handle stream, std::int64_t pool) {
    if (Line *found = find_line(account, stream, pool)) return found;
    lines_.push_back(std::make_unique<Line>(account, stream, pool));
    return lines_.back().get();
}

// Buffers are given back: with the turn

void Cache::flush() {
    std::vector<Buffer *> leaving;
    {
        Guard guard(lock);
        leaving = leaving_.all();
    }
    for (Buffer *buffer : leaving) {
        if (!buffer->give_back()) continue;
        Guard guard(lock);
        leaving_.remove(buffer);
        buffer->account->let_go(buffer->nbytes);
        --buffer->line->buffers;
        store.drop(buffer);
    }
}

template <typename Choose> void Cache::evict(Choose choose) {
    {
        Guard guard(lock);
        for (Buffer *buffer : choose()) {
            shelves.remove(buffer);
            discard(buffer);
        }
    }
    flush();
}

void Cache::release(std::uint64_t nbytes) {
    evict([&] { return shelves.victims(nbytes); });
}

void Cache::make_room(std::uint64_t nbytes) {
    std::uint64_t wanted, limit;
    {
        Guard guard(lock);
        wanted = active_ + pending_ + private_shelves.nbytes + shelves.nbytes + nbytes;
        limit = memory_limit_;
    }
    if (wanted > limit) release(wanted - limit);
}

void Cache::keep_head_room() {
    std::vector<Account *> accounts;
    {
        Guard guard(lock);
        if (shelves.nbytes == 0) return;
        for (auto &account : accounts_) accounts.push_back(account.get());
    }
    for (Account *account : accounts) {
        if (account->supply.pool_reserved() > settings.total - head_room_) {
            release(head_room_);
            return;
        }
    }
}

void Cache::keep_within_limit() {
    std::uint64_t idle, limit;
    {
        Guard guard(lock);
        idle = shelves.nbytes;
        limit = cache_limit_;
    }
    if (idle > limit) release(idle - limit);
}

void Cache::give_back_idle(double now) {
    if (settings.idle_seconds >= 0) evict([&] { return shelves.idle_since(now, now - settings.idle_seconds); });
}

void Cache::trim(Account *account, std::uint64_t keep) {
    flush();
    evict([&] { return oldest_of(account, keep); });
    {
        Guard guard(lock);
        if (!slab || slab->account != account || !slab->is_whole() || account->reserved <= keep) return;
    }
    account->supply.free(slab->start);
    Guard guard(lock);
    account->let_go(slab->nbytes);
    slab->drop_slots(store);
    slab.reset();
}

std::vector<Buffer *> Cache::oldest_of(Account *account, std::uint64_t keep) const {
    std::vector<Buffer *> oldest;
    std::uint64_t rest = account->reserved;
    const BufferList &by_age = shelves.by_age();
    for (Buffer *buffer = by_age.first(); buffer != nullptr && rest > keep; buffer = by_age.after(buffer)) {
        if (buffer->account != account) continue;
        oldest.push_back(buffer);
        if (buffer->kind != Kind::SLOT) rest -= buffer->nbytes;
    }
    return oldest;
}

// What is past: with the turn

void Cache::look_for_quiet(Line *line) {
    Supply &supply = line->account->supply;
    if (line->mark == PAST) {
        {
            Guard guard(lock);
            if (line->quiet == line->frees) return;
            line->marked = line->frees;
        }
        line->mark = supply.mark(line->stream);
    }
    if (line->mark == UNKNOWN) {
        line->mark = PAST;
    } else if (is_past(supply, line->mark)) {
        Guard guard(lock);
        line->mark = PAST;
        line->quiet = std::max(line->quiet, line->marked);
    }
}

void Cache::forget_lines(Account *account, const std::vector<Handle> &awaited) {
    std::vector<Line *> unused;
    {
        Guard guard(lock);
        shelves.drop_empty();
        private_shelves.drop_empty();
        for (auto &line : lines_) {
            if (line->account == account && line->buffers == 0) unused.push_back(line.get());
        }
    }
    for (Line *line : unused) {
        Handle stream = line->stream;
        if (std::find(awaited.begin(), awaited.end(), stream) != awaited.end()) continue;
        look_for_quiet(line);
        bool is_stream_unused;
        {
            Guard guard(lock);
            if (line->mark != PAST || line->quiet != line->frees || line->buffers != 0) continue;
            if (slab) slab->forget(line);
            if (latest_ == line) latest_ = nullptr;
            lines_.erase(std::find_if(lines_.begin(), lines_.end(), [&](auto &one) { return one.get() == line; }));
            is_stream_unused = std::none_of(lines_.begin(), lines_.end(), [&](auto &other) {
                return other->account == account && other->stream == stream;
            });
        }
        if (is_stream_unused) account->supply.forget(stream);
    }
}

}  // namespace allotment::mlx
