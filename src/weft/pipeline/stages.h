// The stages of a pipeline, each from the folder of the one before to its own.
#pragma once
#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/stage.h"

namespace weft {

// All block; throw Interrupted where the context says stop, and Error.

// What a stage's result depends on. Hashes the files that parameters name. The read stage's inputs are left out: once
// it is complete, they may be gone.
StageIdentity read_identity(const PipelineConfig& config);
StageIdentity filter_identity(const PipelineConfig& config, const StageResult& before);
StageIdentity dedup_identity(const PipelineConfig& config, const StageResult& before);
StageIdentity decontaminate_identity(const PipelineConfig& config, const StageResult& before);

// Files to documents. Rows that are broken go to broken-NNNNN.jsonl beside the shards.
StageResult run_read_stage(const PipelineConfig& config, const std::filesystem::path& folder,
                           const StageContext& context);
// The rules whose sections are in the file, in the order of docs/formats/pipeline.md.
StageResult run_filter_stage(const PipelineConfig& config, const StageResult& before,
                             const std::filesystem::path& folder, const StageContext& context);
// Equal and similar documents, equal lines. Who was kept for whom goes to duplicates-NNNNN.jsonl beside the shards.
StageResult run_dedup_stage(const PipelineConfig& config, const StageResult& before,
                            const std::filesystem::path& folder, const StageContext& context);
// Documents that share sequences of words with evaluation files are dropped.
StageResult run_decontaminate_stage(const PipelineConfig& config, const StageResult& before,
                                    const std::filesystem::path& folder, const StageContext& context);
// Documents, as often as their sources say, to token files: train-NNNNN.bin and .idx, valid-NNNNN.bin and .idx, and for
// each the documents in it, in order: NAME.documents (docs/formats/pipeline.md).
StageResult run_tokens_stage(const PipelineConfig& config, const StageResult& before,
                             const std::filesystem::path& folder, const StageContext& context);

}  // namespace weft
