// Letting other Python threads run while a kernel works.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace bitclass {

// Releases the GIL for as long as it lives.
//
// Before Python 3.14, a daemon thread that asks for the GIL while the interpreter shuts down is ended
// by pthread_exit, which unwinds the stack like an exception, and C++ answers that with terminate()
// in every destructor on the way. Such a thread is held here instead until the process has ended.
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

}  // namespace bitclass
