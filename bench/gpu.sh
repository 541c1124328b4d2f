#!/usr/bin/env bash
# Everything that can be known only on a machine with a GPU, in one command: builds weft with its module for GPUs, tests
# it, and times it beside the machine's limits and beside PyTorch.
#   bench/gpu.sh [PART ...] [-- CMAKE_ARGUMENT ...]
# Parts, in this order; all of them where none is named:
#   build      configure and build (preset cuda)
#   test       ctest -L gpu: kernels against the reference, golden runs, layouts, repeats; two processes, the same bits
#   sanitize   compute-sanitizer's memcheck and racecheck over every kernel case
#   kernels    bytes/s of each kernel beside a copy of memory
#   speed      training steps of three models (bench/gpu-*.toml): tokens/s, MFU, memory; where the time of one goes
#   pytorch    the same three beside PyTorch
# A part that fails does not stop the next. The end lists what passed, failed and was skipped; the exit status is 0 only
# if nothing failed. All that it prints is also added to REPORTS/gpu-NAME-DATE.txt.
# Variables: BUILD (build/cuda), REPORTS (docs/benchmarks), PYTHON (python3), ITERS (10), LIMIT (1800: seconds that a
# part may take), RECIPES ("bench/gpu-*.toml"). TRY=1 tries the script itself without a GPU: on the cpu backend, with
# small shapes.
set -uo pipefail
cd "$(dirname "$0")/.."

parts=()
while [[ $# -gt 0 && $1 != -- ]]; do
  if [[ ! $1 =~ ^(build|test|sanitize|kernels|speed|pytorch)$ ]]; then
    if [[ $1 == --help ]]; then
      sed -n '2,17s/^# \{0,1\}//p' "$0"
      exit 0
    fi
    echo "bench/gpu.sh: no part \"$1\"; there are build, test, sanitize, kernels, speed and pytorch" >&2
    exit 2
  fi
  parts+=("$1")
  shift
done
[[ ${1-} == -- ]] && shift
cmake_arguments=("$@")
[[ ${#parts[@]} -gt 0 ]] || parts=(build test sanitize kernels speed pytorch)

build=${BUILD:-build/cuda} python=${PYTHON:-python3} iters=${ITERS:-10} limit=${LIMIT:-1800}
# shellcheck disable=SC2206  # patterns are meant
recipes=(${RECIPES:-bench/gpu-*.toml})
weft=$build/weft
if [[ -n ${TRY-} ]]; then
  backend=cpu name=try reports=${REPORTS:-$(mktemp -d)}
  export WEFT_TEST_BACKEND=cpu
  small=(run.backend=cpu model.path=bench/models/gpt2-30m train.seq_length=32 train.global_batch_size=2
    train.micro_batch_size=2)
  kernel_options=(--tokens=64) torch_options=(--device cpu --backend cpu --no-compile --batch 2 --seq 32 --layers 1 --width 64)
else
  backend=cuda reports=${REPORTS:-docs/benchmarks}
  small=() kernel_options=() torch_options=()
  gpus=
  if ! command -v nvidia-smi >/dev/null; then
    missing="nvidia-smi is not on the PATH"
  elif gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>&1) && [[ -n $gpus ]]; then
    missing=
  else
    missing="nvidia-smi says '$gpus'"
  fi
  if [[ -n $missing ]]; then
    echo "bench/gpu.sh: there is no GPU here: $missing. It needs a machine with an NVIDIA GPU" \
      "and driver (docs/gpu.md); TRY=1 tries the script on the cpu backend" >&2
    exit 2
  fi
  name=$(head -n 1 <<<"$gpus" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
fi
mkdir -p "$reports"
report=$reports/gpu-$name-$(date +%F).txt
# To the terminal and the report, which holds no path of this machine.
home=${HOME-}
[[ ${#home} -gt 1 ]] || home=$PWD
exec > >(sed -u -e "s|$PWD|.|g" -e "s|$home|~|g" | tee -a "$report") 2>&1
printer=$!

passed=() failed=() skipped=()
skip() { echo "SKIPPED: $*"; skipped+=("$*"); }
attempt() {  # what, command ...
  local what=$1 began=$SECONDS status
  shift
  printf '\n== %s\n%s\n' "$what" "$*"
  if declare -F "$1" >/dev/null; then "$@"; else timeout -k 30 "$limit" "$@"; fi
  status=$?
  case $status in
    0) passed+=("$what ($((SECONDS - began)) s)") ;;
    124) failed+=("$what: not done in $limit s") ;;
    *) failed+=("$what: status $status") ;;
  esac
  return "$status"
}
have_program() { [[ -x $weft ]] || { skip "$1: there is no $weft; bench/gpu.sh build makes it"; return 1; }; }

show_machine() {
  printf '== %s\n' "$(date '+%F %T'): $(git describe --always --dirty 2>/dev/null), parts: ${parts[*]}"
  [[ $backend == cpu ]] || nvidia-smi
  "${CUDACXX:-nvcc}" --version 2>/dev/null | tail -n 2
  for program in cmake g++ "$python"; do "$program" --version 2>&1 | head -n 1; done
  grep -m 1 'model name' /proc/cpuinfo
}

run_build() {
  attempt "configure" cmake --preset cuda -B "$build" ${cmake_arguments[@]+"${cmake_arguments[@]}"} &&
    attempt "build" cmake --build "$build" -j "$(nproc)" --target weft weft_cuda &&
    if cmake --build "$build" --target help | grep -q '\btest_gpu\b'; then
      attempt "build the tests" cmake --build "$build" -j "$(nproc)" --target test_gpu
    else
      skip "build the tests: there is no GoogleTest (its sources may lie in the folder of WEFT_HEADERS, docs/gpu.md)"
    fi
}

# Two processes: the last checkpoints must be the same files.
repeat_in_processes() {
  local dir run golden=tests/golden/llama-gqa status=0
  dir=$(mktemp -d)
  for run in one two; do
    timeout -k 30 "$limit" "$weft" train bench/llama-8x512.toml "model.path=$golden" model.init=random "data.train=$golden/tokens.bin" \
      train.seq_length=8 train.global_batch_size=4 train.micro_batch_size=2 train.train_iters=20 train.precision=bf16 \
      optimizer.lr_warmup_iters=2 "run.backend=$backend" "run.dir=$dir/$run" >"$dir/$run.log" 2>&1 ||
      { cat "$dir/$run.log"; status=1; }
  done
  for file in model.safetensors weft/optimizer.safetensors; do
    cmp "$dir"/{one,two}/checkpoints/step-20/$file || status=1
  done
  [[ $status -ne 0 ]] || echo "20 steps in bf16, twice: the same bits"
  rm -rf "$dir"
  return "$status"
}

# Tests that were skipped, or are none, have not passed on a machine with a GPU.
run_watched() {
  local log status
  log=$(mktemp)
  timeout -k 30 "$limit" "$@" | tee "$log"
  status=${PIPESTATUS[0]}
  if grep -qE '\*\*\*Skipped|SKIPPED|Running 0 tests' "$log"; then
    echo "tests were skipped, see above"
    status=1
  fi
  rm -f "$log"
  return "$status"
}

run_ctest() {
  local side=$(($(nproc) / 2))  # side by side: most of a test's time is the reference on the cores
  side=$((side < 1 ? 1 : side > 8 ? 8 : side))
  local -a tests=(ctest --test-dir "$build" -L gpu -j "$side" --output-on-failure --no-tests=error)
  command -v ctest >/dev/null || tests=("$build/tests/test_gpu")  # where it was built elsewhere
  local left_out=
  if [[ $(nvidia-smi -L 2>/dev/null | wc -l) -lt 2 || ${CUDA_VISIBLE_DEVICES-,} != *,* ]]; then
    skip "tests of several GPUs (SeveralGpus): there are fewer than two"
    left_out=SeveralGpus
  fi
  if [[ $backend != cuda ]]; then
    skip "tests of cuDNN (CudnnOnGpu), of CUDA graphs (AsACudaGraph) and of cuBLASLt's file (AFileOfNoUse): they need a GPU"
    left_out="${left_out:+$left_out|}CudnnOnGpu|AsACudaGraph|AFileOfNoUse"
  fi
  if [[ -n $left_out ]]; then
    [[ ${tests[0]} == ctest ]] && tests+=(-E "$left_out") || tests+=("--gtest_filter=-*${left_out//|/*:*}*")
  fi
  run_watched "${tests[@]}"
}

run_tests() {
  attempt "ctest -L gpu" run_ctest
  have_program "repeat" && attempt "repeat" repeat_in_processes
}

run_sanitizer() {
  local tool sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
    { skip "sanitize: there is no compute-sanitizer (it comes with the CUDA toolkit)"; return; }
  [[ $backend == cuda ]] || { skip "sanitize: on the $backend backend there is nothing to watch"; return; }
  [[ -x $build/tests/test_gpu ]] || { skip "sanitize: there is no $build/tests/test_gpu; bench/gpu.sh build makes it"; return; }
  for tool in memcheck racecheck; do
    attempt "$tool" run_watched env WEFT_CUDNN=off "$sanitizer" --tool "$tool" --error-exitcode 1 "$build/tests/test_gpu" \
      --gtest_filter='*/GpuBackend.EqualsTheReferenceOnEveryCase/*'
  done
}

run_kernels() {
  have_program "kernels" || return
  for precision in bf16 f32; do
    attempt "kernels in $precision" "$weft" bench kernels --backend="$backend" --precision="$precision" --iters="$iters" \
      ${kernel_options[@]+"${kernel_options[@]}"}
  done
  [[ $backend != cuda ]] || attempt "kernels in bf16, attention without cuDNN" env WEFT_CUDNN=off "$weft" bench kernels \
    --backend=cuda --precision=bf16 --iters="$iters" ${kernel_options[@]+"${kernel_options[@]}"}
}

# The most memory that the GPU had in use meanwhile, of all processes.
with_peak() {
  local most status
  most=$(mktemp)
  (
    peak=0
    first=${CUDA_VISIBLE_DEVICES-} first=${first%%,*}
    while used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "${first:-0}" 2>/dev/null); do
      [[ $used =~ ^[0-9]+$ ]] || break  # MIG does not say
      [[ $used -le $peak ]] || { peak=$used; echo "$peak" >"$most"; }
      sleep 0.2
    done
  ) &
  timeout -k 30 "$limit" "$@"
  status=$?
  kill $! 2>/dev/null
  wait $! 2>/dev/null
  [[ ! -s $most ]] || echo "GPU memory in use at most, by nvidia-smi: $(cat "$most") MiB (2 GiB of it may be weft measuring the GPU, or the search for products)"
  rm -f "$most"
  return "$status"
}

run_speed() {
  have_program "speed" || return
  for recipe in "${recipes[@]}"; do
    attempt "step of $recipe" with_peak "$weft" bench step "$recipe" --ops --iters="$iters" ${small[@]+"${small[@]}"}
    [[ $backend == cuda ]] || continue
    attempt "step of $recipe, nondeterministic" with_peak "$weft" bench step "$recipe" --ops --iters="$iters" \
      train.numerics=nondeterministic
    attempt "step of $recipe without CUDA graphs" env WEFT_CUDA_GRAPHS=off "$weft" bench step "$recipe" --iters="$iters"
  done
}

run_pytorch() {
  have_program "pytorch" || return
  if ! "$python" -c 'import torch' 2>/dev/null; then
    skip "pytorch: $python has no PyTorch (PYTHON=... names one that has)"
    return
  fi
  for recipe in "${recipes[@]}"; do
    attempt "beside PyTorch: $recipe" "$python" bench/compare_pytorch_gpu.py --weft "$weft" --iters "$iters" "$recipe" \
      ${torch_options[@]+"${torch_options[@]}"}
  done
}

show_machine
for part in "${parts[@]}"; do
  case $part in
    build) run_build ;;
    test) run_tests ;;
    sanitize) run_sanitizer ;;
    kernels) run_kernels ;;
    speed) run_speed ;;
    pytorch) run_pytorch ;;
  esac
done

printf '\n== the end, %s s\n' "$SECONDS"
for what in ${passed[@]+"${passed[@]}"}; do echo "passed: $what"; done
for what in ${skipped[@]+"${skipped[@]}"}; do echo "skipped: $what"; done
for what in ${failed[@]+"${failed[@]}"}; do echo "FAILED: $what"; done
echo "report: $report"
exec >&- 2>&-
wait "$printer"
[[ ${#failed[@]} -eq 0 ]]
