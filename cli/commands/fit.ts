import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { awaitRecorded } from '../../engine/fitting/await-recorded.js';
import { fitPredictor, type FittingStage, requireFittable } from '../../engine/fitting/fit-predictor.js';
import { LEAST_TOKENS, MOST_TOKENS } from '../../engine/fitting/fitting-tokens.js';
import { RecordedStates } from '../../engine/fitting/recorded-states.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { usePack } from '../../packs/format/pack-use.js';
import { PREDICTOR_FILE } from '../../packs/format/pack-layout.js';
import type { Predictor } from '../../packs/predictor/predictor-file.js';
import { UNITS_LIMIT } from '../../packs/predictor/predictor-layout.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { readBoundedFile } from '../../shared/base/files/read-file.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { availableMemoryBytes } from '../../shared/base/runtime/available-memory.js';
import { parseByteSize } from '../../shared/base/text/byte-size.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { createProgressBar, type ProgressBar } from '../../shared/base/text/progress-bar.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { formatBytes, formatDuration } from '../../shared/base/text/units.js';
import { parseWhole } from '../client/generation-flags.js';
import { withInterrupt } from '../client/interrupt.js';
import { runtime } from '../client/process-runtime.js';
import { predictorLines } from '../output/predictor-report.js';

interface FitFlags {
  text?: string;
  record: boolean;
  tokens?: number;
  memory?: number;
  seed: number;
  units?: number;
  json: boolean;
}

const DEFAULT_TOKENS = 50_000;
const DEFAULT_SEED = 1;
const TEXT_LIMIT_BYTES = 256 * 1024 * 1024;

type ShownStage = FittingStage | 'serving';

const STAGES: Readonly<Record<ShownStage, { label: string; unit: string }>> = {
  serving: { label: 'waiting for answers of main', unit: 'tokens' },
  answers: { label: 'making answers', unit: 'tokens' },
  recording: { label: 'recording', unit: 'layers of passes' },
  reading: { label: 'reading the heads of the rows', unit: 'tokens' },
  copying: { label: 'reading what was recorded', unit: 'tokens' },
  training: { label: 'training', unit: 'epochs' },
};

/** `odmoe fit`: trains the maps by which main foretells experts without a shadow. */
export function registerFitCommand(program: Command): void {
  program
    .command('fit')
    .description('train a predictor of experts for a pack, so that main foretells them without a shadow')
    .argument('<pack>', 'directory of a pack')
    .option('--text <file>', "train with this text (UTF-8) instead of the model's own answers")
    .option(
      '--record',
      'train with what main records of its answers while it serves (main.record_tokens), and wait until that is enough',
      false,
    )
    .option(
      '--tokens <n>',
      `tokens to record (default: ${DEFAULT_TOKENS}; with --record, as many as main is to record)`,
      tokensFlag,
    )
    .option('--memory <size>', 'memory to take (default: what is available now)', memoryFlag)
    .option(
      '--seed <n>',
      "chooses the model's questions and answers, and the order of training",
      parseWhole,
      DEFAULT_SEED,
    )
    .option('--units <n>', 'rows of the hidden layer of a map (default: 256, or fewer for a large model)', unitsFlag)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
It runs the model over the tokens, records what each layer meets and which experts its router chooses, and trains small maps from the
one to the other: for the layer itself and for those 1, 2 and 4 ahead. They are written to ${PREDICTOR_FILE} in the pack, with
the share of experts that they foretell in sequences that were held back. "prediction.source: trained" uses them. Answers do not depend
on them.

The model's own answers are the best text where nothing else is known, but to make them the whole model must fit into memory. For a model
that does not, give a text like what it will be used for: the experts of a layer are then loaded one after another, each once for all
the tokens that memory holds.

With --record nothing runs here but the training: a main of this machine that serves the pack with main.record_tokens (--record-tokens)
records what its layers meet in its answers, never their text. The command waits until the tokens are there; after Ctrl-C main goes on.

After an interruption run the same command again: it goes on with what is done. Meanwhile the pack holds the recorded states: 4 bytes
for each token, layer and number of the hidden state. They are deleted at the end. The same model, text, seed and flags give the same
predictor.

Examples:
  odmoe fit /data/demo-pack
  odmoe fit /data/qwen3-pack --text notes.txt --tokens 20000 --memory 24GiB
  odmoe fit /data/qwen3-pack --record`,
    )
    .action(fit);
}

function tokensFlag(value: string): number {
  const tokens = parseWhole(value);
  if (tokens >= LEAST_TOKENS && tokens <= MOST_TOKENS) return tokens;
  throw new InvalidArgumentError(`It must be a whole number from ${LEAST_TOKENS} to ${MOST_TOKENS}.`);
}

function unitsFlag(value: string): number {
  const units = parseWhole(value);
  if (units >= 1 && units <= UNITS_LIMIT) return units;
  throw new InvalidArgumentError(`It must be a whole number from 1 to ${UNITS_LIMIT}.`);
}

function memoryFlag(value: string): number {
  const bytes = parseByteSize(value);
  if (bytes !== null && bytes > 0) return bytes;
  throw new InvalidArgumentError('It must be a size, such as 8GiB.');
}

async function fit(directory: string, flags: FitFlags): Promise<void> {
  const startedMs = runtime.nowMs();
  if (flags.record && flags.text !== undefined) {
    throw new OdmoeError(
      'USAGE',
      '--record trains with the answers of main, --text with a text: leave one of the two out',
    );
  }
  const pack = await openServedPack(directory);
  const leave = await usePack(pack.directory);
  let fitted: Fitted;
  try {
    fitted = await withInterrupt((signal) => withStages((onProgress) => train(pack, flags, signal, onProgress)));
  } finally {
    await leave();
  }
  const path = join(pack.directory, PREDICTOR_FILE);
  const { size: sizeBytes } = await stat(path);
  const elapsedMs = Math.round(runtime.nowMs() - startedMs);
  const { predictor, damagedRows } = fitted;
  const damaged = damagedRows > 0 ? [`  ${damagedRows} recorded tokens are damaged and were left out`] : [];
  if (flags.json) {
    const { shape, recall, tokens, seed, text } = predictor;
    const facts = { shape, tokens, seed, text, recall, ...(flags.record ? { damagedRows } : {}) };
    standardOutput.write(`${printableJson(snakeCaseKeys({ path, sizeBytes, elapsedMs, ...facts }))}\n`);
    return;
  }
  const first = `fitted ${pack.directory} in ${formatDuration(elapsedMs)}: ${path}, ${formatBytes(sizeBytes)}`;
  standardOutput.write(`${[first, ...damaged, ...predictorLines(predictor)].join('\n')}\n`);
}

interface Fitted {
  readonly predictor: Predictor;
  /** Rows of the recorded ones that were left out. */
  readonly damagedRows: number;
}

type OnProgress = (stage: ShownStage, done: number, total: number) => void;

async function train(pack: Pack, flags: FitFlags, signal: AbortSignal, onProgress: OnProgress): Promise<Fitted> {
  const text = flags.text === undefined ? null : await readText(flags.text);
  const recorded = flags.record ? await RecordedStates.open(pack) : null;
  try {
    const tokens = flags.tokens ?? recorded?.limit ?? DEFAULT_TOKENS;
    const memoryOf = (): number => flags.memory ?? availableMemoryBytes();
    if (recorded !== null) {
      requireFittable(pack, { tokens, memoryBytes: memoryOf(), recorded });
      await awaitRecorded(recorded, { tokens, signal, onProgress }, runtime);
    }
    const { seed, units = null } = flags;
    let damagedRows = 0;
    const onDamaged = (rows: number): void => void (damagedRows = rows);
    const request = { text, recorded, tokens, seed, memoryBytes: memoryOf(), units, signal, runtime };
    return { damagedRows, predictor: await fitPredictor(pack, { ...request, onProgress, onDamaged }) };
  } finally {
    await recorded?.close();
  }
}

async function readText(path: string): Promise<{ path: string; content: string }> {
  const remedy = 'give a text of at most 256 MiB';
  const bytes = await readBoundedFile(path, TEXT_LIMIT_BYTES, { missing: 'USAGE', invalid: 'USAGE', remedy });
  try {
    return { path, content: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
  } catch (thrown) {
    throw new OdmoeError('USAGE', `${path}: not a text in UTF-8; convert it, or give another`, { cause: thrown });
  }
}

/** One bar after another, for each stage of the work. */
async function withStages<Result>(run: (onProgress: OnProgress) => Promise<Result>): Promise<Result> {
  const shown: { stage: ShownStage; bar: ProgressBar }[] = [];
  try {
    return await run((stage, done, total) => {
      if (shown.at(-1)?.stage !== stage) {
        shown.at(-1)?.bar.stop();
        const { label, unit } = STAGES[stage];
        shown.push({ stage, bar: createProgressBar(label, (some, all) => `${some} of ${all ?? '?'} ${unit}`) });
      }
      shown.at(-1)?.bar.update(done, total);
    });
  } finally {
    shown.at(-1)?.bar.stop();
  }
}
