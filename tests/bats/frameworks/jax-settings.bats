#!/usr/bin/env bats
# The environment settings by which Penstock makes JAX's tensors visible, and when it leaves JAX
# alone.

load ../../lib/helper

setup() { helper_setup 60; }

# jax_settings [VARIABLE=VALUE]...: prints the allocator and preallocation settings that a program
# under Penstock finds.
jax_settings() {
    run_penstock "$@" sh -c 'echo "${XLA_PYTHON_CLIENT_ALLOCATOR-(unset)} ${XLA_PYTHON_CLIENT_PREALLOCATE-(unset)}"'
    ended_with 0
}

@test "JAX is told to use CUDA's allocator and to allocate nothing ahead of use" {
    jax_settings
    equal "cuda_async false" "$output" "with neither set"
    jax_settings XLA_PYTHON_CLIENT_PREALLOCATE=true
    equal "cuda_async true" "$output" "where the user wants memory ahead of use"
    jax_settings XLA_PYTHON_CLIENT_MEM_FRACTION=.5
    equal "cuda_async false" "$output" "with another setting of JAX's"
}

@test "an allocator that the user names for JAX stays, and so does the user's preallocation" {
    local allocator
    for allocator in default platform bfc cuda_async; do
        jax_settings XLA_PYTHON_CLIENT_ALLOCATOR=$allocator
        equal "$allocator (unset)" "$output" "$allocator"
    done
    jax_settings XLA_PYTHON_CLIENT_ALLOCATOR=default XLA_PYTHON_CLIENT_PREALLOCATE=true
    equal "default true" "$output" "both"
}

@test "PENSTOCK_ALLOC_CONF=0 and PENSTOCK_DISABLE=1 leave JAX's settings alone" {
    local off
    for off in PENSTOCK_ALLOC_CONF=0 PENSTOCK_DISABLE=1; do
        jax_settings $off
        equal "(unset) (unset)" "$output" "$off"
    done
}

@test "a script that names JAX's allocator itself keeps it" {
    local chosen='import os; os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"; os.system("echo $XLA_PYTHON_CLIENT_ALLOCATOR")'
    requires python
    run_penstock python3 -c "$chosen"
    ended_with 0
    equal platform "$output"
}
