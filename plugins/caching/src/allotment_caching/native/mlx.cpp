#include "mlx.hpp"

namespace allotment::mlx {

namespace {

// Return whether a buffer's memory belongs to another device than is asked for; managed memory belongs to none.
bool is_foreign(const Buffer *buffer, int device) { return buffer->device != MANAGED && buffer->device != device; }

}  // namespace

Policy::Policy(std::shared_ptr<Cache> cache, const SupplyCalls &calls, int device, bool is_managed)
    : cache_(std::move(cache)), lock(cache_->lock), device_(is_managed ? MANAGED : device) {
    Guard guard(lock);
    account_ = cache_->open_account(calls, device);
}

// Buffers that are at hand

Buffer *Policy::take_cached(std::uint64_t size, Handle stream, std::int64_t pool) {
    std::uint64_t nbytes = round_size(size);
    Line *line = cache_->find_line(account_, stream, pool);
    if (line == nullptr) return nullptr;
    int device = device_for(nbytes);
    Shelves &shelves = shelves_of(line);
    Buffer *buffer = shelves.first_fitting(nbytes, device, line);
    if (buffer == nullptr || is_foreign(buffer, device)) return nullptr;
    if (line->pool == 0 && cache_->exceeds_limit_without(buffer->nbytes)) return nullptr;
    shelves.remove(buffer);
    return cache_->hand_out(buffer, line);
}

// Buffers that other streams use

void Policy::give_after(Buffer *buffer, const std::vector<Handle> &users) {
    std::vector<Wait> waits;
    try {
        for (Handle user : users) waits.push_back({user, supply().mark(user)});
    } catch (...) {
        Guard guard(lock);
        for (const Wait &wait : waits) {
            if (wait.mark != PAST && wait.mark != UNKNOWN) stray_.push_back(wait.mark);
        }
        throw;
    }
    Guard guard(lock);
    cache_->take_back(buffer);
    cache_->wait_for(buffer->nbytes);
    pending_.push_back({buffer, std::move(waits)});
}

void Policy::settle() {
    for (;;) {
        Mark mark;
        {
            Guard guard(lock);
            if (stray_.empty()) break;
            mark = stray_.front();
        }
        supply().drop(mark);
        Guard guard(lock);
        stray_.pop_front();
    }
    std::vector<std::list<Pending>::iterator> all;
    {
        Guard guard(lock);
        for (auto pending = pending_.begin(); pending != pending_.end(); ++pending) all.push_back(pending);
    }
    for (auto pending : all) {
        if (!is_settled(*pending)) continue;
        Guard guard(lock);
        Buffer *buffer = pending->buffer;
        pending_.erase(pending);
        cache_->wait_no_more_for(buffer->nbytes);
        cache_->recycle(buffer);
    }
}

bool Policy::is_settled(Pending &pending) {
    for (; !pending.waits.empty(); pending.waits.pop_back()) {
        Wait &wait = pending.waits.back();
        if (wait.mark == UNKNOWN) wait.mark = supply().mark(wait.user);
        if (wait.mark == PAST) continue;
        if (wait.mark == UNKNOWN || !supply().is_past(wait.mark)) return false;
        supply().drop(wait.mark);
    }
    return true;
}

// Buffers that are not at hand

Buffer *Policy::take(std::uint64_t size, Handle stream, std::int64_t pool) {
    std::uint64_t nbytes = round_size(size);
    int device = device_for(nbytes);
    Turn::Holder holder(cache_->turn);
    catch_up();
    Line *line;
    {
        Guard guard(lock);
        line = cache_->line(account_, stream, pool);
    }
    Buffer *cached = take_idle(nbytes, device, line);
    Buffer *buffer = cached != nullptr ? cached : make(nbytes, device, line);
    try {
        if (cached == nullptr) cache_->keep_head_room();
        cache_->keep_within_limit();
        if (is_foreign(buffer, device)) buffer = replace(buffer, line);
        cache_->flush();
    } catch (...) {
        Guard guard(lock);
        cache_->recycle(buffer);
        throw;
    }
    Guard guard(lock);
    return cache_->hand_out(buffer, line);
}

void Policy::catch_up() {
    settle();
    cache_->flush();
    cache_->give_back_idle(supply().now());
}

Buffer *Policy::take_idle(std::uint64_t nbytes, int device, Line *line) {
    {
        Guard guard(lock);
        Shelves &shelves = shelves_of(line);
        if (Buffer *buffer = shelves.first_fitting(nbytes, device, line)) {
            shelves.remove(buffer);
            return buffer;
        }
    }
    return line->pool != 0 || cache_->settings.ignores_streams ? nullptr : take_past(nbytes, device);
}

Buffer *Policy::take_past(std::uint64_t nbytes, int device) {
    Shelves &shelves = cache_->shelves;
    for (std::uint64_t size : {nbytes, nbytes + PAGE}) {
        if (size != nbytes && nbytes <= PAGE) break;
        std::vector<Line *> lines;
        {
            Guard guard(lock);
            for (auto &line : cache_->lines()) {
                if (shelves.first(size, device, line.get()) != nullptr) lines.push_back(line.get());
            }
        }
        for (Line *line : lines) cache_->look_for_quiet(line);
        Guard guard(lock);
        Buffer *oldest = nullptr;
        for (Line *line : lines) {
            Buffer *buffer = shelves.first(size, device, line);
            if (buffer == nullptr || !buffer->is_past()) continue;
            if (oldest == nullptr || buffer->age < oldest->age) oldest = buffer;
        }
        if (oldest != nullptr) {
            shelves.remove(oldest);
            return oldest;
        }
    }
    return nullptr;
}

// Buffers that are made

Buffer *Policy::make(std::uint64_t nbytes, int device, Line *line) {
    cache_->make_room(nbytes);
    try {
        return make_once(nbytes, device, line);
    } catch (const SupplyError &failure) {
        if (cache_->settings.never_retries || !supply().is_out_of_memory(failure.error)) throw;
        supply().discard(failure.error);
    }
    give_back(0);
    return make_once(nbytes, device, line);
}

Buffer *Policy::make_once(std::uint64_t nbytes, int device, Line *line) {
    if (nbytes <= SCALAR) {
        if (Buffer *slot = take_slot(line)) return slot;
    }
    Address start;
    Kind kind;
    if (device == MANAGED) {
        start = supply().malloc_managed(nbytes);
        kind = Kind::MANAGED;
    } else if (line->pool != 0) {
        start = supply().malloc(nbytes);
        kind = Kind::SEGMENT;
    } else {
        start = supply().malloc_async(nbytes, line->stream);
        kind = Kind::ORDERED;
    }
    Guard guard(lock);
    Buffer *buffer = cache_->store.make();
    buffer->start = start;
    buffer->nbytes = nbytes;
    buffer->device = device;
    buffer->kind = kind;
    buffer->maker = buffer->account = account_;
    buffer->line = line;
    account_->hold(nbytes);
    ++line->buffers;
    return buffer;
}

Buffer *Policy::take_slot(Line *line) {
    auto &slab = cache_->slab;
    if (!slab) {
        std::uint64_t alignment = cache_->settings.scalar_alignment;
        Address start = supply().malloc_managed(SLOTS * alignment);
        Guard guard(lock);
        slab.emplace(account_, start, alignment);
        account_->hold(slab->nbytes);
    }
    std::vector<Line *> in_flight;
    {
        Guard guard(lock);
        if (Buffer *slot = slab->take(line, cache_->settings.ignores_streams, cache_->store)) return slot;
        in_flight = slab->lines_in_flight();
    }
    for (Line *other : in_flight) cache_->look_for_quiet(other);
    Guard guard(lock);
    return slab->take(line, cache_->settings.ignores_streams, cache_->store);
}

Buffer *Policy::replace(Buffer *buffer, Line *line) {
    Buffer *managed = make(buffer->nbytes, MANAGED, line);
    Guard guard(lock);
    cache_->discard(buffer);
    return managed;
}

// Giving back

void Policy::look_around() {
    if (cache_->turn.is_taken()) return;
    Turn::Holder holder(cache_->turn);
    catch_up();
    cache_->forget_lines(account_, awaited());
}

void Policy::trim(std::uint64_t keep) {
    Turn::Holder holder(cache_->turn);
    give_back(keep);
    cache_->forget_lines(account_, awaited());
}

void Policy::give_back(std::uint64_t keep) {
    wait();
    cache_->trim(account_, keep);
    wait();  // what is given back in the order of a stream is there once the stream has come to it
}

void Policy::wait() {
    std::vector<std::pair<Line *, std::uint64_t>> frees;
    std::vector<Handle> streams;
    auto add = [&](Handle stream) {
        if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    };
    {
        Guard guard(lock);
        for (auto &line : cache_->lines()) {
            if (line->account != account_) continue;
            frees.push_back({line.get(), line->frees});
            add(line->stream);
        }
    }
    for (Handle stream : awaited()) add(stream);
    std::vector<Handle> done;
    for (Handle stream : streams) {
        if (supply().synchronize(stream)) done.push_back(stream);
    }
    {
        Guard guard(lock);
        for (auto [line, count] : frees) {
            if (std::find(done.begin(), done.end(), line->stream) != done.end()) {
                line->quiet = std::max(line->quiet, count);
            }
        }
    }
    settle();
}

std::vector<Handle> Policy::awaited() {
    Guard guard(lock);
    std::vector<Handle> streams;
    for (const Pending &pending : pending_) {
        for (const Wait &wait : pending.waits) streams.push_back(wait.user);
    }
    return streams;
}

// Pools, other devices, figures

void Policy::release_pool(std::int64_t pool) {
    Guard guard(lock);
    std::vector<Buffer *> idle;
    for (Buffer *buffer : cache_->private_shelves.by_age().all()) {
        if (buffer->line->account == account_ && buffer->line->pool == pool) idle.push_back(buffer);
    }
    for (Buffer *buffer : idle) cache_->private_shelves.remove(buffer);
    for (auto &line : cache_->lines()) {
        if (line->account == account_ && line->pool == pool) line->pool = 0;
    }
    for (Buffer *buffer : idle) cache_->recycle(buffer);
}

void Policy::share(int ordinal, bool enable) {
    Turn::Holder holder(cache_->turn);
    supply().share_pool(ordinal, enable);
}

Figures Policy::figures() {
    Guard guard(lock);
    std::uint64_t largest = 0;
    const BufferList &by_age = cache_->shelves.by_age();
    for (Buffer *buffer = by_age.first(); buffer != nullptr; buffer = by_age.after(buffer)) {
        if (buffer->account == account_) largest = std::max(largest, buffer->nbytes);
    }
    return {account_->reserved, account_->peak, account_->allocated, largest};
}

void Policy::reset_peak() {
    Guard guard(lock);
    account_->peak = account_->reserved;
}

}  // namespace allotment::mlx
