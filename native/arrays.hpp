// Arrays from and for Python, checked before kernels use their pointers. Every error names the argument.
#pragma once

#include <unistd.h>

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

namespace bitclass {

namespace nb = nanobind;

[[noreturn]] inline void refuse_value(const std::string& message) { throw nb::value_error(message.c_str()); }

// Expected lengths of the axes of an array; kAny matches any length.
using Shape = std::initializer_list<std::size_t>;
constexpr auto kAny = static_cast<std::size_t>(-1);

// An array of any type that supports the buffer protocol. Must be created and destroyed with the GIL held.
class AnyArray {
public:
    AnyArray(nb::handle object, const char* name, Shape expected) : name_(name) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
            PyErr_Clear();
            refuse("an array", nb::inst_name(object).c_str());
        }
        if (static_cast<std::size_t>(view_.ndim) != expected.size()) {
            refuse(std::to_string(expected.size()) + " dimensions", std::to_string(view_.ndim));
        }
        int axis = 0;
        for (const std::size_t length : expected) {
            if (length != kAny && shape(axis) != length) {
                refuse_value(std::string(name_) + ": expected length " + std::to_string(length) + " along axis " +
                             std::to_string(axis) + ", found " + std::to_string(shape(axis)));
            }
            ++axis;
        }
    }
    AnyArray(const AnyArray&) = delete;
    AnyArray& operator=(const AnyArray&) = delete;

    std::size_t shape(int axis) const { return static_cast<std::size_t>(view_.shape[axis]); }
    std::ptrdiff_t stride(int axis) const { return view_.strides[axis]; }  // in bytes
    void* pointer() const { return view_.buf; }
    bool read_only() const { return view_.readonly != 0; }

    // NumPy's name of the element type, or the format string if it is not a plain number.
    std::string dtype() const {
        const std::string format = view_.format == nullptr ? "B" : view_.format;
        const std::size_t at = format.find_first_not_of("@=<");  // native order; big-endian keeps its '>'
        const std::string bits = std::to_string(8 * view_.itemsize);
        if (at != std::string::npos && format.size() == at + 1) {
            const char kind = format[at];
            if (std::string("bhilq").find(kind) != std::string::npos) return "int" + bits;
            if (std::string("BHILQ").find(kind) != std::string::npos) return "uint" + bits;
            if (std::string("efd").find(kind) != std::string::npos) return "float" + bits;
        }
        return "'" + format + "'";
    }
    bool is(const char* dtype_name) const { return dtype() == dtype_name; }

    bool aligned_to(std::size_t bytes) const { return reinterpret_cast<std::uintptr_t>(view_.buf) % bytes == 0; }

    [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
        throw nb::type_error((std::string(name_) + ": expected " + expected + ", found " + found).c_str());
    }

private:
    struct View : Py_buffer {
        View() : Py_buffer{} {}
        ~View() { PyBuffer_Release(this); }
    };
    View view_;
    const char* name_;
};

// An aligned C-contiguous array of one element type; a const T accepts read-only arrays.
template <class T>
class Array : public AnyArray {
public:
    Array(nb::handle object, const char* name, Shape expected_shape) : AnyArray(object, name, expected_shape) {
        using Element = std::remove_const_t<T>;
        const std::string bits = std::to_string(8 * sizeof(T));
        const std::string type =
            std::is_floating_point_v<T> ? "float" + bits : (std::is_signed_v<T> ? "int" : "uint") + bits;
        const std::string expected = "a C-contiguous array of " + type;
        if (dtype() != type) refuse(expected, dtype());
        if (!std::is_const_v<T> && read_only()) refuse(expected, "a read-only one");
        std::ptrdiff_t expected_stride = sizeof(T);
        bool contiguous = aligned_to(alignof(Element));
        for (int axis = static_cast<int>(expected_shape.size()) - 1; axis >= 0; --axis) {
            contiguous = contiguous && (stride(axis) == expected_stride || shape(axis) <= 1);
            expected_stride *= static_cast<std::ptrdiff_t>(shape(axis));
        }
        if (expected_stride != 0 && !contiguous) refuse(expected, "another layout");
    }

    T* data() const { return static_cast<T*>(pointer()); }
};

// numpy.empty, set when the module is loaded.
inline PyObject* numpy_empty = nullptr;

// A new array for a kernel to fill.
template <class T>
class NewArray {
public:
    template <class... Lengths>
    explicit NewArray(Lengths... shape)
        : object(nb::handle(numpy_empty)(nb::make_tuple(shape...), dtype())),
          array_(object, "new", {std::size_t{shape}...}) {}

    T* data() const { return array_.data(); }
    nb::object object;

private:
    static const char* dtype() {
        if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? "f4" : "f8";
        constexpr const char* kSigned[] = {"i1", "i2", "i4", "i8"};
        return std::is_signed_v<T> ? kSigned[sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3] : "u1";
    }
    Array<T> array_;
};

// Releases the GIL while a kernel runs.
//
// Before Python 3.14, a daemon thread that acquires the GIL while the interpreter shuts down is ended
// by pthread_exit, which unwinds the stack like an exception, so that a destructor on the way calls
// terminate(). Such a thread is suspended here instead until the process ends.
class WithoutGil {
public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) pause();
        }
    }
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

private:
    PyThreadState* state_;
};

template <class Work>
auto without_gil(Work work) {
    const WithoutGil released;
    return work();
}

}  // namespace bitclass
