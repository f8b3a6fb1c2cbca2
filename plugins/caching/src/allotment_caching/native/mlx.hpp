// The policy "mlx". The twin of engine/mlx.py and engine/mlx_cache.py, which say why things are as they are.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "mlx_buffers.hpp"
#include "policy.hpp"

namespace allotment::mlx {

struct Settings {
    std::uint64_t total = 0, memory_limit = 0, cache_limit = 0, scalar_alignment = 0;
    double idle_seconds = -1;  // below 0: never
    bool ignores_streams = false, ignores_devices = false, never_retries = false, limits_wait = false,
         peak_falls_to_zero = false;
};

class Cache {
  public:
    explicit Cache(const Settings &settings);

    const Settings settings;
    SpinLock lock;
    Turn turn;
    Shelves shelves;
    Shelves private_shelves;
    std::optional<Slab> slab;
    BufferStore store;

    // The interface of MLX

    std::uint64_t get_active_memory() { return read(active_); }
    std::uint64_t get_peak_memory() { return read(peak_); }
    std::uint64_t get_cache_memory() { return read(shelves.nbytes); }
    std::uint64_t get_memory_limit() { return read(memory_limit_); }
    std::uint64_t get_cache_limit() { return read(cache_limit_); }
    void reset_peak_memory();
    std::uint64_t set_memory_limit(std::uint64_t limit);
    std::uint64_t set_cache_limit(std::uint64_t limit);
    void clear_cache();

    // Buffers change hands: with the lock

    Buffer *hand_out(Buffer *buffer, Line *line);
    void take_back(Buffer *buffer);
    void recycle(Buffer *buffer);
    void discard(Buffer *buffer);
    void wait_for(std::uint64_t nbytes) { pending_ += nbytes; }
    void wait_no_more_for(std::uint64_t nbytes) { pending_ -= nbytes; }
    bool exceeds_limit_without(std::uint64_t nbytes) const { return shelves.nbytes - nbytes > cache_limit_; }
    bool is_due() const { return leaving_.first() != nullptr; }
    Account *open_account(const SupplyCalls &calls, int device);
    Line *line(Account *account, Handle stream, std::int64_t pool);
    Line *find_line(Account *account, Handle stream, std::int64_t pool);
    const std::vector<std::unique_ptr<Line>> &lines() const { return lines_; }

    // Buffers are given back: with the turn

    void flush();
    void make_room(std::uint64_t nbytes);
    void keep_head_room();
    void keep_within_limit();
    void give_back_idle(double now);
    void trim(Account *account, std::uint64_t keep);

    // What is past: with the turn

    void look_for_quiet(Line *line);
    void forget_lines(Account *account, const std::vector<Handle> &awaited);

  private:
    using Guard = std::lock_guard<SpinLock>;

    std::uint64_t read(const std::uint64_t &figure) {
        Guard guard(lock);
        return figure;
    }
    void release(std::uint64_t nbytes);
    template <typename Choose> void evict(Choose choose);
    std::vector<Buffer *> oldest_of(Account *account, std::uint64_t keep) const;

    std::vector<std::unique_ptr<Account>> accounts_;
    std::vector<std::unique_ptr<Line>> lines_;  // in the order they were made
    Line *latest_ = nullptr;
    BufferList leaving_{&Buffer::by_age};
    std::uint64_t active_ = 0, peak_ = 0, pending_ = 0;
    std::uint64_t memory_limit_, cache_limit_, head_room_;
};

class Policy {
  public:
    using Item = Buffer;

    Policy(std::shared_ptr<Cache> cache, const SupplyCalls &calls, int device, bool is_managed);

  private:
    std::shared_ptr<Cache> cache_;

  public:
    SpinLock &lock;

    // With the lock: buffers that are at hand.

    Buffer *take_cached(std::uint64_t size, Handle stream, std::int64_t pool);
    void give(Buffer *buffer) {
        cache_->take_back(buffer);
        cache_->recycle(buffer);
    }
    bool is_due() const { return cache_->is_due(); }
    static Handle stream_of(const Buffer *buffer) { return buffer->line->stream; }

    // Without the lock, and without the interpreter's.

    Buffer *take(std::uint64_t size, Handle stream, std::int64_t pool);
    void give_after(Buffer *buffer, const std::vector<Handle> &users);
    void look_around();
    void trim(std::uint64_t keep);
    void release_pool(std::int64_t pool);
    void share(int ordinal, bool enable);
    Figures figures();
    void reset_peak();
    std::uint64_t get_limit() const { return cache_->get_memory_limit(); }
    std::uint64_t get_cache_limit() const { return cache_->get_cache_limit(); }
    void set_limit(std::uint64_t nbytes) { cache_->set_memory_limit(nbytes); }
    void set_cache_limit(std::uint64_t nbytes) { cache_->set_cache_limit(nbytes); }
    void watch(Handle stream) { supply().watch(stream); }
    void discard(void *error) { supply().discard(error); }

  private:
    struct Wait {
        Handle user;
        Mark mark;
    };
    struct Pending {
        Buffer *buffer;
        std::vector<Wait> waits;
    };
    using Guard = std::lock_guard<SpinLock>;

    Supply &supply() { return account_->supply; }
    int device_for(std::uint64_t nbytes) const { return nbytes <= SCALAR ? MANAGED : device_; }
    Shelves &shelves_of(const Line *line) { return line->pool != 0 ? cache_->private_shelves : cache_->shelves; }

    void settle();
    bool is_settled(Pending &pending);
    void catch_up();
    Buffer *take_idle(std::uint64_t nbytes, int device, Line *line);
    Buffer *take_past(std::uint64_t nbytes, int device);
    Buffer *make(std::uint64_t nbytes, int device, Line *line);
    Buffer *make_once(std::uint64_t nbytes, int device, Line *line);
    Buffer *take_slot(Line *line);
    Buffer *replace(Buffer *buffer, Line *line);
    void give_back(std::uint64_t keep);
    void wait();
    std::vector<Handle> awaited();

    Account *account_;
    int device_;
    std::list<Pending> pending_;
    std::deque<Mark> stray_;
};

}  // namespace allotment::mlx
