// `weft launch`: the files that start a run elsewhere.
#include <gtest/gtest.h>

#include "apps/small_run.h"
#include "weft/apps/launch_files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;

LaunchSpec four_ranks() {
  return {.recipe = "recipe.toml",
          .overrides = {"train.seed=7", "run.dir=it's"},
          .name = "first",
          .made_by = "weft launch recipe.toml",
          .ranks = 4,
          .nodes = 2,
          .threads = 3,
          .node_bytes = 800 << 20,
          .notice_s = 90,
          .image = "weft:1",
          .claim = "claim",
          .mount = "/data"};
}
const std::string kCommand = "weft supervise recipe.toml train.seed=7 'run.dir=it'\\''s' run.ranks=mpi";

// So many lines begin with this text, behind blanks.
int lines_beginning(const std::string& text, const std::string& begin) {
  std::istringstream in(text);
  int count = 0;
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find_first_not_of(' ');
        at != std::string::npos && line.compare(at, begin.size(), begin) == 0)
      ++count;
  return count;
}

TEST(LaunchFiles, JobsAreNamedAfterAnyText) {
  EXPECT_EQ(job_name_of("runs/My first_run"), "my-first-run");
  EXPECT_EQ(job_name_of("runs/7b"), "weft-7b");
  EXPECT_EQ(job_name_of("--"), "weft");
  EXPECT_EQ(job_name_of(std::string(99, 'x')).size(), 40u);
}

TEST(LaunchFiles, SlurmGivesNoticeToTheSupervisorAndRequeues) {
  const std::string one = slurm_script(four_ranks());
  EXPECT_SAYS(one,
              "#SBATCH --nodes=2 --ntasks=4 --ntasks-per-node=2\n#SBATCH --cpus-per-task=3\n#SBATCH --mem=1000M\n");
  EXPECT_SAYS(one, "#SBATCH --requeue\n");
  EXPECT_SAYS(one, "#SBATCH --signal=B:USR1@90\n");
  EXPECT_SAYS(one, "RequeueExit=75");
  EXPECT_TRUE(one.ends_with("\nexec " + kCommand + "\n")) << one;
  LaunchSpec spec = four_ranks();
  spec.chain = 5;
  spec.time_limit = "12:00:00";
  spec.gpus = true;
  const std::string chain = slurm_script(spec);
  EXPECT_SAYS(chain, "#SBATCH --array=1-5%1\n");
  EXPECT_SAYS(chain, "#SBATCH --time=12:00:00\n");
  EXPECT_SAYS(chain, "#SBATCH --gpus-per-task=1\n");
}

TEST(LaunchFiles, AJobSetTellsExitStatusesApart) {
  const std::string yaml = jobset_yaml(four_ranks());
  EXPECT_SAYS(yaml, "name: hopeless\n      action: FailJobSet\n");
  EXPECT_SAYS(yaml, "onJobFailureMessagePatterns: [\"exit code (2|64|88|90|91|93) \"]");
  EXPECT_SAYS(yaml, "name: stopped\n      action: RestartJobSetAndIgnoreMaxRestarts\n");
  EXPECT_SAYS(yaml, "onJobFailureMessagePatterns: [\"exit code (75|86|130|143) \"]");
  EXPECT_SAYS(yaml, "values: [2, 64, 88, 90, 91, 93]");
  EXPECT_SAYS(yaml, "values: [75, 86, 130, 143]");
  EXPECT_EQ(lines_beginning(yaml, "terminationGracePeriodSeconds: 90"), 2);
  EXPECT_EQ(lines_beginning(yaml, "persistentVolumeClaim: {claimName: \"claim\"}"), 2);
  EXPECT_EQ(lines_beginning(yaml, "readinessProbe:"), 1);
  EXPECT_SAYS(yaml, "echo \"$(hostname) slots=2\" >/tmp/hosts\n");
  EXPECT_SAYS(yaml, "echo \"first-worker-0-0.first slots=2\" >>/tmp/hosts\n");
  EXPECT_SAYS(yaml, "exec " + kCommand + " --hosts /tmp/hosts\n");
  LaunchSpec alone = four_ranks();
  alone.nodes = 1;
  EXPECT_EQ(lines_beginning(jobset_yaml(alone), "- name: worker"), 0);
  EXPECT_EQ(jobset_yaml(alone).find("ssh"), std::string::npos) << "nothing listens";
}

TEST(LaunchFiles, AnMpiJobsLauncherIsARankToo) {
  const std::string yaml = mpijob_yaml(four_ranks());
  EXPECT_SAYS(yaml, "slotsPerWorker: 2\n  runLauncherAsWorker: true");
  EXPECT_SAYS(
      yaml,
      "command: [\"weft\", \"supervise\", \"recipe.toml\", \"train.seed=7\", \"run.dir=it's\", \"run.ranks=mpi\", "
      "\"--hosts\", \"/etc/mpi/hostfile\"]");
  EXPECT_EQ(lines_beginning(yaml, "replicas: 1"), 2);
  EXPECT_EQ(lines_beginning(yaml, "restartPolicy: OnFailure"), 2);
}

class Launch : public testing::SmallRun {
 protected:
  Finished launch(std::vector<std::string> more) {
    more.insert(more.begin(), {"launch", (dir_ / "r.toml").string()});
    more.insert(more.end(), {"--out", (dir_ / "job").string()});
    return testing::weft(more);
  }
};

TEST_F(Launch, WritesScriptsThatShellsReadAndReplacesNone) {
  const std::vector<std::string> two{"--slurm", "parallel.dp=2", "run.ranks=mpi", "--nodes", "2"};
  const Finished f = launch(two);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "written; nothing was started");
  EXPECT_EQ(testing::run({.args = {"-n", (dir_ / "job").string()}, .program = "bash"}).status, 0);
  const std::string before = testing::slurp(dir_ / "job");
  EXPECT_SAYS(before, "--nodes=2 --ntasks=2");
  const Finished again = launch({"--ssh", "--hosts", (dir_ / "hosts").string()});
  EXPECT_EQ(again.status, 2);
  EXPECT_EQ(testing::slurp(dir_ / "job"), before);
  testing::spill(dir_ / "hosts", "a slots=1\nb slots=1\n");
  EXPECT_EQ(launch({"--ssh", "--hosts", (dir_ / "hosts").string(), "parallel.dp=2", "--again"}).status, 0);
  const std::string script = testing::slurp(dir_ / "job");
  EXPECT_SAYS(script, "for host in a b; do");
  EXPECT_SAYS(script, "--hosts " + (dir_ / "hosts").string() + "\n");
  EXPECT_EQ(testing::run({.args = {"-n", (dir_ / "job").string()}, .program = "sh"}).status, 0);
}

TEST_F(Launch, RefusesWhatCannotBeWritten) {
  EXPECT_SAYS(launch({}).err, "--slurm, --k8s or --ssh is missing");
  EXPECT_SAYS(launch({"--k8s", "jobset", "--claim", "c"}).err, "--image is missing");
  EXPECT_SAYS(launch({"--slurm", "parallel.dp=2", "--nodes", "3"}).err, "which must be as many on each node");
  EXPECT_SAYS(launch({"--slurm", "--name", "My_job"}).err, "as my-job");
  EXPECT_SAYS(launch({"--slurm", "--partition", "low;rm"}).err, "scripts need letters");
  EXPECT_FALSE(fs::exists(dir_ / "job"));
}

}  // namespace
}  // namespace weft
