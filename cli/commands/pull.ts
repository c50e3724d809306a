import type { Command } from 'commander';
import { openAnyPack } from '../../packs/format/open-pack.js';
import { parseRepository, repositoryName } from '../../packs/hub/hub-repository.js';
import { createProgressBar, describeBytes } from '../../shared/base/text/progress-bar.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { formatBytes, formatDuration } from '../../shared/base/text/units.js';
import { withInterrupt } from '../client/interrupt.js';
import { runtime } from '../client/process-runtime.js';
import { DEFAULT_REVISION, findModel, type FoundModel, obtainPack, releaseModel } from '../models/find-model.js';
import { packsDirectory } from '../models/pack-places.js';
import { progressLines } from '../output/progress-lines.js';

interface PullFlags {
  revision: string;
  packs?: string;
  dryRun: boolean;
  json: boolean;
}

/** Whence a pack came. */
const ORIGINS: Readonly<Record<FoundModel['kind'], string>> = {
  packed: 'a pack that was here',
  cached: "a checkpoint in the hub's own cache, which stays",
  hub: 'the hub',
};

/** `odmoe pull`: makes the pack of a model on the hub. */
export function registerPullCommand(program: Command): void {
  program
    .command('pull')
    .description('download a model from the Hugging Face hub and pack it, file by file')
    .argument('<repository>', 'the model on the hub, as Qwen/Qwen3-30B-A3B; OWNER/NAME:FILE.gguf for a GGUF file')
    .option('--revision <name>', 'a branch, tag or commit', DEFAULT_REVISION)
    .option('--packs <directory>', 'where packs lie (default: $XDG_DATA_HOME/odmoe/packs, ~/.local/share by default)')
    .option('--dry-run', 'say what would be done, and end', false)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
A file of weights is deleted as soon as its experts are packed and read back, so the disk never holds model and pack at once. After an
interruption run the same command again: it continues where it stopped. All files come from the commit that the revision names at the
beginning, and their checksums are compared. A whole checkpoint in the hub's own cache is packed from there, and stays.

Of a GGUF model name the file, of a split one any part: all parts are downloaded, and deleted when the pack is made. The disk holds
both until then. Without a name the files of the repository are listed.

Environment, as of the hub's own library: HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT (a mirror), HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE.

Examples:
  odmoe pull Qwen/Qwen3-30B-A3B
  odmoe pull Qwen/Qwen3-30B-A3B --dry-run
  odmoe pull unsloth/Qwen3-30B-A3B-GGUF:Qwen3-30B-A3B-Q4_K_M.gguf
  odmoe pull openai/gpt-oss-120b --packs /data/packs --json`,
    )
    .action(async (name: string, flags: PullFlags) => pull(name, flags));
}

async function pull(name: string, flags: PullFlags): Promise<void> {
  const repository = parseRepository(name);
  const startedMs = runtime.nowMs();
  const pulled = await withInterrupt(async (signal) => {
    const { revision } = flags;
    const model = await findModel(repository, { revision, packs: packsDirectory(flags.packs), signal, tell });
    try {
      if (flags.dryRun) {
        standardOutput.write(
          `${flags.json ? printableJson(plannedJson(repositoryName(repository), model)) : firstLine(repositoryName(repository), model)}\n`,
        );
        return null;
      }
      if (model.kind !== 'packed' && !flags.json) standardOutput.write(`${sizeLine(model)}\n`);
      return { kind: model.kind, directory: await obtainWithBar(model, signal) };
    } finally {
      await releaseModel(model);
    }
  });
  if (pulled === null) return;
  const { kind, directory } = pulled;
  const pack = await openAnyPack(directory);
  const packBytes = pack.manifest.files.reduce((sum, file) => sum + file.size_bytes, 0);
  const elapsedMs = Math.round(runtime.nowMs() - startedMs);
  const text = flags.json
    ? printableJson({
        directory,
        name: pack.name,
        digest: pack.packDigest,
        pack_bytes: packBytes,
        from: kind,
        elapsed_ms: elapsedMs,
      })
    : [
        `${directory}: ${formatBytes(packBytes)}, from ${ORIGINS[kind]}, in ${formatDuration(elapsedMs)}`,
        `  serve it: odmoe main --model ${directory}`,
      ].join('\n');
  standardOutput.write(`${text}\n`);
}

/** Tells the user something beside the result. */
export function tell(words: string): void {
  standardError.write(`odmoe: ${words}\n`);
}

/** The object that --dry-run prints with --json. */
function plannedJson(id: string, model: FoundModel): Record<string, string | number> {
  return {
    model: id,
    from: model.kind,
    directory: model.directory,
    download_bytes: model.kind === 'hub' ? model.remote.weightBytes : 0,
    disk_needed_bytes: model.kind === 'packed' ? 0 : model.needs.peakBytes,
  };
}

/** One line that says how much of the model is here before the command does anything. */
export function firstLine(id: string, model: FoundModel): string {
  return model.kind === 'packed' ? `${id}: its pack is here, ${model.directory}` : sizeLine(model);
}

/** The bytes to download, and the room that they and the pack take. */
function sizeLine(model: Exclude<FoundModel, { kind: 'packed' }>): string {
  const { packBytes, peakBytes } = model.needs;
  const from =
    model.kind === 'hub'
      ? `${formatBytes(model.remote.weightBytes)} to download`
      : `${model.checkpoint.directory}, nothing to download`;
  return `${model.id}: ${from}; a pack of about ${formatBytes(packBytes)}, and ${formatBytes(peakBytes)} on the disk while it is made`;
}

/** As obtainPack, with a bar, or with lines where no terminal shows one. */
export async function obtainWithBar(model: FoundModel, signal: AbortSignal): Promise<string> {
  if (model.kind === 'packed') return model.directory;
  const label = model.kind === 'hub' ? 'pulling and packing' : 'packing';
  const lines = progressLines(label, tell, () => runtime.nowMs());
  const bar = createProgressBar(label, describeBytes, lines);
  try {
    return await obtainPack(model, signal, (done, total) => bar.update(done, total), tell);
  } finally {
    bar.stop();
  }
}
