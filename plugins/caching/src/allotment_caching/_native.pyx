# distutils: language = c++
# cython: language_level=3, freethreading_compatible=True, binding=False, wraparound=False, boundscheck=False
"""The compiled engine: `allotment_caching.engine.engine.Engine` with either policy, in C++."""

from cpython.contextvars cimport PyContextVar_Get
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, intptr_t, uint64_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from operator import index

from allotment import UnsupportedError
from allotment_caching.engine.engine import tell_of_idle_memory
from allotment_caching.engine.policy import Figures, refuse_negative

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object) except? 0xFFFFFFFFFFFFFFFF

cdef extern from "native/supply.hpp" namespace "allotment" nogil:
    cdef cppclass SupplyCalls:
        void *self
        void *memory
        uint64_t granule
        uint64_t (*reserve)(void *, void **, uint64_t) noexcept
        void (*unreserve)(void *, void **, uint64_t, uint64_t) noexcept
        uint64_t (*create)(void *, void **, uint64_t) noexcept
        void (*release)(void *, void **, uint64_t) noexcept
        void (*map)(void *, void **, uint64_t, uint64_t, uint64_t) noexcept
        void (*unmap)(void *, void **, uint64_t, uint64_t) noexcept
        void (*grant)(void *, void **, uint64_t, uint64_t) noexcept
        void (*share)(void *, void **, int, const uint64_t *, const uint64_t *, size_t, cbool) noexcept
        uint64_t (*malloc)(void *, void **, uint64_t) noexcept
        void (*free)(void *, void **, uint64_t) noexcept
        uint64_t (*malloc_managed)(void *, void **, uint64_t) noexcept
        uint64_t (*malloc_async)(void *, void **, uint64_t, uint64_t) noexcept
        void (*free_async)(void *, void **, uint64_t, uint64_t) noexcept
        cbool (*may_free)(void *, void **, uint64_t) noexcept
        void (*share_pool)(void *, void **, int, cbool) noexcept
        uint64_t (*pool_reserved)(void *, void **) noexcept
        int64_t (*mark)(void *, void **, uint64_t) noexcept
        cbool (*is_past)(void *, void **, int64_t) noexcept
        void (*drop)(void *, void **, int64_t) noexcept
        cbool (*synchronize)(void *, void **, uint64_t) noexcept
        void (*forget)(void *, void **, uint64_t) noexcept
        void (*watch)(void *, void **, uint64_t) noexcept
        cbool (*is_out_of_memory)(void *, void *) noexcept
        double (*now)(void *) noexcept
        void (*discard)(void *) noexcept

cdef extern from "native/driver.hpp" namespace "allotment" nogil:
    cdef cppclass DriverFunctions "allotment::driver::Functions":
        void set(size_t, uintptr_t)

    cdef cppclass DriverMemory "allotment::DriverMemory":
        DriverMemory(const DriverFunctions &, int, void *, void *(*)(void *, const char *, int) noexcept)
        void fill(SupplyCalls &)

cdef extern from "native/translate.hpp" namespace "allotment":
    void translate()

cdef extern from "native/engine.hpp" namespace "allotment" nogil:
    cdef cppclass CFigures "allotment::Figures":
        uint64_t reserved, peak_reserved, allocated, largest_free

    cdef cppclass CAccount "allotment::Account":
        uint64_t current, peak, allocations, frees, blocks

    cdef enum class Freed "allotment::Freed":
        DONE
        DUE
        USED
        NOT_LIVE
        WRONG_SIZE

    cdef cppclass CEngine "allotment::Engine":
        uint64_t take_cached(uint64_t, uint64_t, int64_t, cbool)
        uint64_t take(uint64_t, uint64_t, int64_t, cbool) except +translate
        Freed free(uint64_t, uint64_t &)
        void free_used(uint64_t, cbool) except +translate
        cbool give(uint64_t)
        void enter(uint64_t, uint64_t)
        Freed leave(uint64_t, uint64_t &, uint64_t &)
        void record_use(uint64_t, uint64_t)
        cbool is_booked(uint64_t)
        vector[pair[uint64_t, uint64_t]] booked_blocks() except +
        CAccount account()
        void reset_peak()
        CFigures figures()
        void reset_peak_reserved()
        uint64_t limit()
        uint64_t cache_limit()
        void set_limit(uint64_t) except +translate
        void set_cache_limit(uint64_t) except +translate
        void look_around() except +translate
        void trim(uint64_t) except +translate
        void release_pool(int64_t)
        void share(int, cbool) except +translate

cdef extern from "native/elastic.hpp" namespace "allotment" nogil:
    cdef cppclass CElasticSettings "allotment::ElasticSettings":
        uint64_t total, limit, cache_limit
        double idle_seconds

    cdef cppclass CElasticEngine "allotment::EngineWith<allotment::ElasticPolicy>"(CEngine):
        CElasticEngine(const SupplyCalls &, const CElasticSettings &)

cdef extern from "native/mlx.hpp" namespace "allotment::mlx" nogil:
    cdef cppclass CMlxSettings "allotment::mlx::Settings":
        uint64_t total, memory_limit, cache_limit, scalar_alignment
        double idle_seconds
        cbool ignores_streams, ignores_devices, never_retries, limits_wait, peak_falls_to_zero

    cdef cppclass CMlxCache "allotment::mlx::Cache":
        CMlxCache(const CMlxSettings &)
        uint64_t get_active_memory()
        uint64_t get_peak_memory()
        uint64_t get_cache_memory()
        uint64_t get_memory_limit()
        uint64_t get_cache_limit()
        void reset_peak_memory()
        uint64_t set_memory_limit(uint64_t) except +translate
        uint64_t set_cache_limit(uint64_t) except +translate
        void clear_cache() except +translate

    cdef cppclass CMlxEngine "allotment::EngineWith<allotment::mlx::Policy>"(CEngine):
        CMlxEngine(shared_ptr[CMlxCache], const SupplyCalls &, int, cbool)

cdef extern from "native/c_calls.hpp" namespace "allotment" nogil:
    ctypedef intptr_t (*FindStream)() noexcept
    cdef cppclass Client:
        CEngine *engine
        FindStream find_stream
    cbool take_service(int, CEngine *)
    int MOST_DEVICES
    void *torch_allocate(ptrdiff_t, int, void *) noexcept
    void torch_free(void *, ptrdiff_t, int, void *) noexcept
    intptr_t cupy_allocate(void *, size_t, int) noexcept
    void cupy_free(void *, intptr_t, int) noexcept

cdef extern from *:
    ctypedef ssize_t ptrdiff_t


# The calls of the supply. Each hands an exception over instead of raising it.

cdef inline void keep(void **error, object exception) noexcept:
    Py_INCREF(exception)
    error[0] = <void *>exception


cdef uint64_t reserve(void *supply, void **error, uint64_t nbytes) noexcept with gil:
    try:
        return (<object>supply).reserve(nbytes)
    except BaseException as exception:
        keep(error, exception)
        return 0


cdef void unreserve(void *supply, void **error, uint64_t start, uint64_t nbytes) noexcept with gil:
    try:
        (<object>supply).unreserve(start, nbytes)
    except BaseException as exception:
        keep(error, exception)


cdef uint64_t create(void *supply, void **error, uint64_t nbytes) noexcept with gil:
    try:
        return (<object>supply).create(nbytes)
    except BaseException as exception:
        keep(error, exception)
        return 0


cdef void release(void *supply, void **error, uint64_t handle) noexcept with gil:
    try:
        (<object>supply).release(handle)
    except BaseException as exception:
        keep(error, exception)


cdef void map_(void *supply, void **error, uint64_t start, uint64_t nbytes, uint64_t handle) noexcept with gil:
    try:
        (<object>supply).map(start, nbytes, handle)
    except BaseException as exception:
        keep(error, exception)


cdef void unmap(void *supply, void **error, uint64_t start, uint64_t nbytes) noexcept with gil:
    try:
        (<object>supply).unmap(start, nbytes)
    except BaseException as exception:
        keep(error, exception)


cdef void grant(void *supply, void **error, uint64_t start, uint64_t nbytes) noexcept with gil:
    try:
        (<object>supply).grant(start, nbytes)
    except BaseException as exception:
        keep(error, exception)


cdef void share(void *supply, void **error, int ordinal, const uint64_t *starts, const uint64_t *sizes, size_t count,
                cbool enable) noexcept with gil:
    try:
        ranges = [(starts[i], sizes[i]) for i in range(count)]
        (<object>supply).share(ordinal, ranges, enable=bool(enable))
    except BaseException as exception:
        keep(error, exception)


cdef uint64_t malloc(void *supply, void **error, uint64_t nbytes) noexcept with gil:
    try:
        return (<object>supply).malloc(nbytes)
    except BaseException as exception:
        keep(error, exception)
        return 0


cdef void free(void *supply, void **error, uint64_t ptr) noexcept with gil:
    try:
        (<object>supply).free(ptr)
    except BaseException as exception:
        keep(error, exception)


cdef uint64_t malloc_managed(void *supply, void **error, uint64_t nbytes) noexcept with gil:
    try:
        return (<object>supply).malloc_managed(nbytes)
    except BaseException as exception:
        keep(error, exception)
        return 0


cdef uint64_t malloc_async(void *supply, void **error, uint64_t nbytes, uint64_t stream) noexcept with gil:
    try:
        return (<object>supply).malloc_async(nbytes, stream)
    except BaseException as exception:
        keep(error, exception)
        return 0


cdef void free_async(void *supply, void **error, uint64_t ptr, uint64_t stream) noexcept with gil:
    try:
        (<object>supply).free_async(ptr, stream)
    except BaseException as exception:
        keep(error, exception)


cdef cbool may_free(void *supply, void **error, uint64_t stream) noexcept with gil:
    try:
        return (<object>supply).may_free(stream)
    except BaseException as exception:
        keep(error, exception)
        return False


cdef void share_pool(void *supply, void **error, int ordinal, cbool enable) noexcept with gil:
    try:
        (<object>supply).share_pool(ordinal, enable=bool(enable))
    except BaseException as exception:
        keep(error, exception)


cdef uint64_t pool_reserved(void *supply, void **error) noexcept with gil:
    try:
        return (<object>supply).pool_reserved()
    except BaseException as exception:
        keep(error, exception)
        return 0


cdef int64_t mark(void *supply, void **error, uint64_t stream) noexcept with gil:
    try:
        return (<object>supply).mark(stream)
    except BaseException as exception:
        keep(error, exception)
        return 0


cdef cbool is_past(void *supply, void **error, int64_t mark) noexcept with gil:
    try:
        return (<object>supply).is_past(mark)
    except BaseException as exception:
        keep(error, exception)
        return False


cdef void drop(void *supply, void **error, int64_t mark) noexcept with gil:
    try:
        (<object>supply).drop(mark)
    except BaseException as exception:
        keep(error, exception)


cdef cbool synchronize(void *supply, void **error, uint64_t stream) noexcept with gil:
    try:
        return (<object>supply).synchronize(stream)
    except BaseException as exception:
        keep(error, exception)
        return False


cdef void forget(void *supply, void **error, uint64_t stream) noexcept with gil:
    try:
        (<object>supply).forget(stream)
    except BaseException as exception:
        keep(error, exception)


cdef void watch(void *supply, void **error, uint64_t stream) noexcept with gil:
    try:
        (<object>supply).watch(stream)
    except BaseException as exception:
        keep(error, exception)


cdef cbool is_out_of_memory(void *supply, void *error) noexcept with gil:
    return (<object>supply).is_out_of_memory(<object>error)


cdef double now(void *supply) noexcept with gil:
    return (<object>supply).now()


cdef void discard(void *error) noexcept with gil:
    Py_XDECREF(<PyObject *>error)


cdef void *explain(void *supply, const char *call, int result) noexcept with gil:
    try:
        error = (<object>supply).driver_error(call.decode(), result)
    except BaseException as exception:
        error = exception
    Py_INCREF(error)
    return <void *>error


cdef SupplyCalls calls_of(object supply):
    cdef SupplyCalls calls
    calls.self = calls.memory = <void *>supply
    calls.granule = supply.granule
    calls.reserve, calls.unreserve = reserve, unreserve
    calls.create, calls.release = create, release
    calls.map, calls.unmap, calls.grant, calls.share = map_, unmap, grant, share
    calls.malloc, calls.free = malloc, free
    calls.malloc_managed, calls.malloc_async, calls.free_async = malloc_managed, malloc_async, free_async
    calls.may_free, calls.share_pool, calls.pool_reserved = may_free, share_pool, pool_reserved
    calls.mark, calls.is_past, calls.drop, calls.synchronize = mark, is_past, drop, synchronize
    calls.forget, calls.watch = forget, watch
    calls.is_out_of_memory, calls.now, calls.discard = is_out_of_memory, now, discard
    return calls


cdef class MlxCache:
    """The twin of `allotment_caching.engine.mlx_cache.MlxCache`.

    Parameters
    ----------
    settings
        What can be set.
    """

    cdef shared_ptr[CMlxCache] cache
    cdef list supplies
    cdef object __weakref__

    def __cinit__(self, settings):
        cdef CMlxSettings given
        given.total, given.memory_limit, given.cache_limit = settings.total, settings.memory_limit, settings.cache_limit
        given.scalar_alignment = settings.scalar_alignment
        given.idle_seconds = -1 if settings.idle_seconds is None else settings.idle_seconds
        given.ignores_streams, given.ignores_devices = settings.ignores_streams, settings.ignores_devices
        given.never_retries, given.limits_wait = settings.never_retries, settings.limits_wait
        given.peak_falls_to_zero = settings.peak_falls_to_zero
        self.cache = make_shared[CMlxCache](given)
        self.supplies = []

    cdef CEngine *engine(self, supply, int device, cbool is_managed):
        self.supplies.append(supply)  # which made buffers that may outlive its engine
        return new CMlxEngine(self.cache, calls_of(supply), device, is_managed)

    def get_active_memory(self):
        """Return the bytes of the buffers that are handed out."""
        return self.cache.get().get_active_memory()

    def get_peak_memory(self):
        """Return the most bytes that were handed out since the last reset."""
        return self.cache.get().get_peak_memory()

    def reset_peak_memory(self):
        """Forget the peak."""
        self.cache.get().reset_peak_memory()

    def get_memory_limit(self):
        """Return the memory limit."""
        return self.cache.get().get_memory_limit()

    def set_memory_limit(self, limit):
        """Set how much may be held before idle buffers are given back; return the former limit."""
        cdef uint64_t nbytes = require_limit(limit)
        with nogil:
            nbytes = self.cache.get().set_memory_limit(nbytes)
        return nbytes

    def get_cache_memory(self):
        """Return the bytes of the buffers that are idle."""
        return self.cache.get().get_cache_memory()

    def get_cache_limit(self):
        """Return how much may be idle."""
        return self.cache.get().get_cache_limit()

    def set_cache_limit(self, limit):
        """Set how much may be idle; return the former limit."""
        cdef uint64_t nbytes = require_limit(limit)
        with nogil:
            nbytes = self.cache.get().set_cache_limit(nbytes)
        return nbytes

    def clear_cache(self):
        """Give all idle buffers back."""
        with nogil:
            self.cache.get().clear_cache()


cdef class Engine:
    """The blocks of one device that are handed out, and the memory behind them.

    Parameters
    ----------
    supply
        Where memory comes from.
    streams
        The streams that were seen; the supply asks them.
    memory
        For the policy "elastic", its settings; for "mlx", the `MlxCache`.
    device, is_managed
        For "mlx": the ordinal, and whether all requests get managed memory.
    """

    cdef CEngine *engine
    cdef DriverMemory *driver
    cdef object supply, streams, memory, device, stream_scopes, find_stream
    cdef object unusual_size, failed_allocation, wrong_free, failed_free
    cdef public unsigned long long largest
    cdef bint is_served
    is_compiled = True

    def __cinit__(self, supply, streams, memory, int device=0, cbool is_managed=False):
        self.supply, self.streams, self.memory = supply, streams, memory
        self.largest = 2**63 - 1
        if isinstance(memory, MlxCache):
            self.engine = (<MlxCache>memory).engine(supply, device, is_managed)
        else:
            self.driver = driver_memory(supply)
            self.engine = elastic_engine(supply, memory, self.driver)

    def __dealloc__(self):
        if not self.is_served:
            del self.engine
            del self.driver

    @property
    def calls_driver(self):
        """Whether memory is made and mapped by the driver's own functions, without the interpreter."""
        return self.driver != NULL

    def attach(self, answers):
        """Take what core answers to unusual calls."""
        self.device, self.stream_scopes, self.find_stream = answers.device, answers.stream_scopes, answers.find_stream
        self.unusual_size, self.failed_allocation = answers.unusual_size, answers.failed_allocation
        self.wrong_free, self.failed_free = answers.wrong_free, answers.failed_free

    # Booked calls

    def allocate(self, size):
        """Return the address of a new block for work on the stream in force, and book it."""
        cdef int overflow
        cdef long long nbytes
        cdef uint64_t ptr, handle
        if not PyLong_CheckExact(size):
            return self.unusual_size(size)
        nbytes = PyLong_AsLongLongAndOverflow(size, &overflow)
        if overflow or nbytes <= 0 or <unsigned long long>nbytes > self.largest:
            return self.unusual_size(size)
        stream = self.stream_in_force()
        handle = PyLong_AsUnsignedLongLong(stream.handle)
        ptr = self.engine.take_cached(nbytes, handle, 0, True)
        if ptr == 0:
            try:
                ptr = self.take(nbytes, stream, handle, 0, True)
            except Exception as error:
                self.failed_allocation(error, size)
        return ptr

    def deallocate(self, ptr, size):
        """Take a booked block back in the order of the stream it was allocated on."""
        cdef uint64_t address, nbytes
        cdef Freed freed
        if not as_number(ptr, &address):
            return self.wrong_free(ptr, None, size)
        if not as_number(size, &nbytes):
            nbytes = 0
        freed = self.engine.free(address, nbytes)
        if freed == Freed.DONE:
            return None
        if freed == Freed.USED:
            self.free_used(address)
        elif freed == Freed.DUE:
            self.look_around()
        else:
            return self.wrong_free(ptr, None if freed == Freed.NOT_LIVE else nbytes, size)

    cdef inline object stream_in_force(self):
        """The stream in force: without scopes, what the device keeps; else what core finds."""
        cdef PyObject *scopes
        PyContextVar_Get(self.stream_scopes, NULL, &scopes)
        entered = PyTuple_GET_SIZE(<object>scopes) > 0
        Py_DECREF(<object>scopes)
        if not entered:
            stream = self.device.stream_in_place
            if stream is not None:
                return stream
        return self.find_stream()

    cdef uint64_t take(self, uint64_t size, stream, uint64_t handle, int64_t pool, cbool booked) except 0:
        """Take a block that is not at hand."""
        cdef uint64_t ptr
        self.streams.see(stream)
        with nogil:
            ptr = self.engine.take(size, handle, pool, booked)
        self.streams.see(stream)  # a trim may have forgotten it before the block was taken
        return ptr

    cdef free_used(self, uint64_t ptr):
        try:
            with nogil:
                self.engine.free_used(ptr, True)
        except BaseException as error:
            self.failed_free(error)

    cpdef look_around(self):
        """Do what is due now and then; tell of a failure as a warning."""
        try:
            with nogil:
                self.engine.look_around()
        except Exception as error:
            tell_of_idle_memory(error)

    # Calls with a stream, which nobody books

    def allocate_on(self, size, stream, pool=0):
        """Return the address of a new block, of a private pool if one is named."""
        cdef uint64_t handle = stream.handle, nbytes = size
        cdef int64_t number = pool
        cdef uint64_t ptr = self.engine.take_cached(nbytes, handle, number, False)
        return ptr or self.take(nbytes, stream, handle, number, False)

    def deallocate_on(self, ptr, size, stream):
        """Take a block back in the order of its stream, and of another that it is freed on."""
        cdef uint64_t address = ptr
        self.record_use(ptr, stream)
        if self.engine.give(address):
            with nogil:
                self.engine.free_used(address, False)

    def enter(self, ptr, size):
        """Book a block of `allocate_on`."""
        self.engine.enter(ptr, size)

    def leave(self, ptr, size):
        """Take a block off the books, for `deallocate_on`; return its stream, ``None`` if that was refused."""
        cdef uint64_t address, nbytes, stream
        if not as_number(ptr, &address):
            return self.wrong_free(ptr, None, size)
        if not as_number(size, &nbytes):
            nbytes = 0
        cdef Freed freed = self.engine.leave(address, nbytes, stream)
        if freed == Freed.DONE:
            return self.streams.find(stream)
        self.wrong_free(ptr, None if freed == Freed.NOT_LIVE else nbytes, size)

    def record_use(self, ptr, stream):
        """Note that work on a stream uses a block."""
        self.streams.see(stream, is_used=True)
        self.engine.record_use(ptr, stream.handle)

    # Accounts

    def __len__(self):
        return self.engine.account().blocks

    def __contains__(self, ptr):
        cdef uint64_t address
        return as_number(ptr, &address) and self.engine.is_booked(address)

    def blocks(self):
        """Return the address of each booked block, and the size that was asked for."""
        return [(block.first, block.second) for block in self.engine.booked_blocks()]

    @property
    def current(self):
        """Bytes that are booked now, each block with the size that was asked for."""
        return self.engine.account().current

    @property
    def peak(self):
        """The most of them."""
        return self.engine.account().peak

    @property
    def allocations(self):
        """Allocations that succeeded."""
        return self.engine.account().allocations

    @property
    def frees(self):
        """Frees that succeeded."""
        return self.engine.account().frees

    def reset_peak(self):
        """Set the peak to what is booked now."""
        self.engine.reset_peak()

    # What is held

    def figures(self):
        """Return what is held, handed out and idle."""
        cdef CFigures found = self.engine.figures()
        return Figures(found.reserved, found.peak_reserved, found.allocated, found.largest_free)

    def reset_peak_reserved(self):
        """Set the high-water mark of what is held to what is held now."""
        self.engine.reset_peak_reserved()

    @property
    def limit(self):
        """The most bytes to hold."""
        return self.engine.limit()

    @limit.setter
    def limit(self, limit):
        cdef uint64_t nbytes = require_limit(limit)
        with nogil:
            self.engine.set_limit(nbytes)

    @property
    def cache_limit(self):
        """The most bytes to hold idle."""
        return self.engine.cache_limit()

    @cache_limit.setter
    def cache_limit(self, limit):
        cdef uint64_t nbytes = require_limit(limit)
        with nogil:
            self.engine.set_cache_limit(nbytes)

    def trim(self, keep):
        """Wait for the work in flight, and give idle memory back until at most ``keep`` bytes are held."""
        cdef uint64_t nbytes = keep
        with nogil:
            self.engine.trim(nbytes)

    def release_pool(self, pool):
        """Let the idle memory of a private pool serve others."""
        self.engine.release_pool(pool)

    def share(self, ordinal, enable):
        """Let another device touch all memory, present and future, or not."""
        cdef int number = ordinal
        cdef cbool enabled = enable
        with nogil:
            self.engine.share(number, enabled)

    def close(self):
        """Give everything back; no block is live any more."""
        self.trim(0)

    # For callers in C

    def serve(self, int device):
        """Serve callers in C on a device from now on; the engine is never freed then.

        Returns
        -------
        dict
            The addresses of two functions: see `allotment.CFunctions`.
        """
        if not 0 <= device < MOST_DEVICES:
            raise ValueError(f"a device's number is from 0 to {MOST_DEVICES - 1}, not {device}")
        if not take_service(device, self.engine):
            raise UnsupportedError(f"another caching allocator serves libraries in C on cuda:{device} already")
        self.keep_for_ever()
        return {"allocate": <uintptr_t>&torch_allocate, "free": <uintptr_t>&torch_free}

    def client(self, uintptr_t find_stream):
        """Serve a caller in C that has a current stream from now on; the engine is never freed then.

        Returns
        -------
        dict
            What the functions are given, and their addresses: see `allotment.CClient`.
        """
        cdef Client *made = new Client()
        self.keep_for_ever()
        made.engine, made.find_stream = self.engine, <FindStream>find_stream
        return {"param": <uintptr_t>made, "allocate": <uintptr_t>&cupy_allocate, "free": <uintptr_t>&cupy_free}

    cdef keep_for_ever(self):
        if not self.is_served:
            self.is_served = True
            Py_INCREF(self.supply)


cdef DriverMemory *driver_memory(supply) except? NULL:
    """Return the driver's functions for a device, found now; nothing where the platform has no driver."""
    cdef DriverFunctions functions
    addresses = supply.driver_functions()
    if not addresses:
        return NULL
    for place, address in enumerate(addresses):
        functions.set(place, address)
    return new DriverMemory(functions, supply.ordinal, <void *>supply, explain)


cdef CEngine *elastic_engine(supply, settings, DriverMemory *driver) except NULL:
    cdef CElasticSettings given
    cdef SupplyCalls calls = calls_of(supply)
    if driver != NULL:
        driver.fill(calls)
    given.total, given.limit, given.cache_limit = settings.total, settings.limit, settings.cache_limit
    given.idle_seconds = settings.idle_seconds or 0
    return new CElasticEngine(calls, given)


cdef uint64_t require_limit(limit) except? 0xFFFFFFFFFFFFFFFF:
    refuse_negative(limit)
    return limit


cdef inline bint as_number(object value, uint64_t *number) except -1:
    """Whether a value is a whole number that an address or a size can be."""
    cdef int overflow
    cdef long long found
    if not PyLong_CheckExact(value):
        try:
            value = index(value)
        except TypeError:
            return False
    found = PyLong_AsLongLongAndOverflow(value, &overflow)
    number[0] = <uint64_t>found
    return not overflow and found >= 0
