#include "weft/tasks/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"

namespace weft {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArch = 0;
#endif

// What changes a file, or reaches beyond the process. What only some machines have stands in the second part.
constexpr long kForbidden[] = {
    SYS_unlinkat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_truncate,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_mknodat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_openat2,
    SYS_open_by_handle_at,
    SYS_io_uring_setup,
    SYS_socket,
    SYS_socketpair,
    SYS_clone,
    SYS_clone3,
    SYS_execveat,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_pidfd_getfd,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_prlimit64,
    SYS_setpriority,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_msgget,
    SYS_msgctl,
    SYS_msgsnd,
    SYS_semget,
    SYS_semctl,
    SYS_semop,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    442,  // mount_setattr, which older headers do not name
    452,  // fchmodat2
    463,  // setxattrat
    466,  // removexattrat
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_sched_setaffinity,
#if defined(__x86_64__)
    SYS_unlink,
    SYS_rename,
    SYS_renameat,
    SYS_mkdir,
    SYS_rmdir,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_creat,
    SYS_mknod,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_fork,
    SYS_vfork,
#endif
};
constexpr uint32_t kWrites = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);

// A filter for seccomp (linux/seccomp.h): what is forbidden fails with EPERM, and a file opens for reading alone.
std::vector<sock_filter> filter() {
  constexpr uint32_t kFails = SECCOMP_RET_ERRNO | EPERM;
  const auto load = [](size_t offset) { return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, uint32_t(offset)); };
  const auto ends = [](uint32_t how) { return sock_filter BPF_STMT(BPF_RET | BPF_K, how); };
  std::vector<sock_filter> all{load(offsetof(seccomp_data, arch)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 1, 0),
                               ends(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr)),
                               // calls of x86-64 by 32-bit pointers
                               BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), ends(kFails)};
  for (const long call : kForbidden) {
    all.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uint32_t(call), 0, 1));
    all.push_back(ends(kFails));
  }
  // It could type into a terminal. Python takes this error for a descriptor that is none.
  all.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uint32_t(SYS_ioctl), 0, 1));
  all.push_back(ends(SECCOMP_RET_ERRNO | ENOTTY));
  const auto opens = [&](long call, int flags) {
    const size_t at = offsetof(seccomp_data, args) + size_t(flags) * sizeof(uint64_t);  // little endian
    all.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uint32_t(call), 0, 4));
    all.push_back(load(at));
    all.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kWrites, 0, 1));
    all.push_back(ends(kFails));
    all.push_back(ends(SECCOMP_RET_ALLOW));
  };
  opens(SYS_openat, 2);
#if defined(__x86_64__)
  opens(SYS_open, 1);
#endif
  all.push_back(ends(SECCOMP_RET_ALLOW));
  return all;
}

void limit(int resource, int64_t most) {
  const rlimit both{rlim_t(most), rlim_t(most)};
  ::setrlimit(__rlimit_resource(resource), &both);
}

struct Child {
  const char* python;
  int program, nowhere, failed;  // descriptors; what went wrong is written to the last
  const sock_fprog* filter;
  const SandboxLimits& limits;
};

// Between fork and exec: calls of the system alone.
[[noreturn]] void become(const Child& c) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(c.program, 0), ::dup2(c.nowhere, 1), ::dup2(c.nowhere, 2);
  limit(RLIMIT_CPU, int64_t(c.limits.seconds) + 1);
  limit(RLIMIT_AS, c.limits.bytes);
  limit(RLIMIT_CORE, 0), limit(RLIMIT_FSIZE, 0), limit(RLIMIT_NOFILE, 64);
  ::syscall(SYS_close_range, 3U, ~0U, 4U);  // CLOSE_RANGE_CLOEXEC: what the starter of this process left open
  const char* argv[] = {c.python, "-I", "-B", "-", nullptr};
  const char* env[] = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", nullptr};
  if (::chdir("/") == 0 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, c.filter) == 0)
    ::execve(c.python, const_cast<char**>(argv), const_cast<char**>(env));
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(c.failed, &error, sizeof error);
  ::_exit(1);
}

// Its exit status; -1: it was ended, or took too long.
int wait_for(pid_t child, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  for (bool killed = false;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (ended < 0 && errno != EINTR) return -1;
    if (!killed && std::chrono::steady_clock::now() > end) killed = ::kill(child, SIGKILL) == 0;
    ::usleep(1000);
  }
}

// Where there are too many processes for the moment, some seconds later.
pid_t fork_patiently() {
  pid_t child = ::fork();
  for (int tries = 0; child < 0 && errno == EAGAIN && tries < 50; ++tries) {
    ::usleep(100'000);
    child = ::fork();
  }
  return child;
}

Descriptor memory_file(const std::string& text) {
  Descriptor file(::memfd_create("program", MFD_CLOEXEC));
  if (file < 0 || ::write(file, text.data(), text.size()) != ssize_t(text.size()) || ::lseek(file, 0, SEEK_SET) != 0)
    throw Error(fmt::format("a program of {} bytes cannot be kept in memory: {}", text.size(), std::strerror(errno)));
  return file;
}

}  // namespace

bool runs_to_its_end(const std::string& python, const std::string& program, const SandboxLimits& limits) {
  if (kArch == 0) throw Error("programs cannot be run apart on this kind of machine");
  const int at_end = 2 + int(std::random_device()() % 250);  // the exit status of one that runs to its end: no guess
  const Descriptor file = memory_file(program + fmt::format("\n\n__import__('os')._exit({})\n", at_end));
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("no pipe: {}", std::strerror(errno)));
  const Descriptor reads(ends[0]);
  Descriptor writes(ends[1]);
  std::vector<sock_filter> instructions = filter();
  const sock_fprog whole{.len = static_cast<unsigned short>(instructions.size()), .filter = instructions.data()};
  const pid_t child = fork_patiently();
  if (child == 0) become({python.c_str(), file, nowhere, writes, &whole, limits});
  if (child < 0) throw Error(fmt::format("no process can be started: {}", std::strerror(errno)));
  writes = Descriptor();
  int error = 0;
  ssize_t told;
  do told = ::read(reads, &error, sizeof error);
  while (told < 0 && errno == EINTR);
  const bool began = told == 0;
  const int status = wait_for(child, limits.seconds);
  if (!began) throw Error(fmt::format("{} cannot be run apart from everything else: {}", python, std::strerror(error)));
  return status == at_end;
}

std::string find_python() {
  std::string path;
  if (FILE* out = ::popen("python3 -I -c 'import sys; print(sys.executable)' 2>/dev/null", "r")) {
    char part[256];
    while (::fgets(part, sizeof part, out) != nullptr) path += part;
    ::pclose(out);
  }
  while (path.ends_with('\n')) path.pop_back();
  return path;
}

void require_sandbox(const std::string& python) {
  const char* tries = R"(import os, socket
for forbidden in [lambda: open('/dev/null', 'w'), os.fork, socket.socket, lambda: os.kill(os.getppid(), 0)]:
    try:
        forbidden()
    except PermissionError:
        continue
    raise SystemExit
)";
  if (!runs_to_its_end(python, tries, {.seconds = 30}))
    throw Error(
        fmt::format("{}: does not run, or this system cannot hold it back from files, sockets, processes and "
                    "signals; what a model writes is not run without that",
                    python));
}

}  // namespace weft
