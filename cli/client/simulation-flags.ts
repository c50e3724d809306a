import { join } from 'node:path';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { parseNumber } from './generation-flags.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { parseByteSize } from '../../shared/base/text/byte-size.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { ExpertStorage } from '../../shared/settings/setting-choices.js';
import { MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';
import { settingFlag } from './setting-flags.js';
import type { PredictionSource } from '../../shared/decisions/placement/draft-rows.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { DEFAULT_SET_UP, type ClusterSetUp } from '../../simulator/simulate/cluster-set-up.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { readTrace, RecordedTrace } from '../../simulator/trace/trace-file.js';

/** Most workers: with shadow, they are as many daemons as main can have addresses for. */
export const MOST_WORKERS = 1023;
const MOST_REQUESTS = 256;
const MOST_TOKENS = 65_536;
const MOST_SLOTS = 64;
export const DEFAULT_PROMPT_TOKENS = 16;
const MOST_SEED = 2 ** 32;

/** Recall where there is no measurement: for shadow the value of OD-MoE, for routers ahead a usual value of trained models. */
export const ASSUMED_RECALL: Readonly<Record<PredictionSource, number>> = {
  sep: 0.997,
  'router-ahead': 0.85,
  trained: 0.9,
  random: 0,
  off: 0,
};

/** The file of a profile: a path, or the name of a profile that comes with odmoe. */
export function profileFile(nameOrPath: string): string {
  if (/[/.]/.test(nameOrPath)) return nameOrPath;
  return join(packageRoot(), 'bench', 'profiles', `${nameOrPath}.yaml`);
}

/** Flags that `odmoe simulate` and `odmoe plan cluster` share. */
export interface TraceFlags {
  profile: string;
  workers: number;
  trace: string;
  tokens: number;
  promptTokens?: number;
  prediction?: PredictionSource;
  /** If missing: the assumed recall of the prediction source. */
  recall?: number;
  acceptance: number;
  seed: number;
  /** If missing: the form in which the model is shipped. */
  expertStorage?: ExpertStorage;
  slots?: number;
  cache?: number;
  json: boolean;
}

export interface SimulateFlags extends TraceFlags {
  alignToken: number;
  alignKv: number;
  streamKv: boolean;
  prefillOverlap: boolean;
  optimistic: boolean;
  draftRows: number | 'auto';
  spread: 'group' | 'all';
  homes: 'group' | 'strict';
  replicas: number;
  prediction: PredictionSource;
  layersAhead: number;
  groupSize: number | 'auto';
  prefillRows: number;
  miniBatchRows: number;
  requests: number;
  diagram?: string;
  diagramToken: number;
}

export function addTraceFlags(command: Command, workers: number, tokens: number): Command {
  return command
    .option('--profile <file>', 'device profile: a file, or the name of one in bench/profiles', 'rtx3090-testbed')
    .option('--workers <n>', 'worker nodes', wholeNumberFlag(1, MOST_WORKERS), workers)
    .option('--trace <file|synthetic>', 'a file of "odmoe bench trace", or random numbers', 'synthetic')
    .option('--tokens <n>', 'tokens of an answer', wholeNumberFlag(1, MOST_TOKENS), tokens)
    .option(
      '--prompt-tokens <n>',
      `tokens of a synthetic prompt (default: ${DEFAULT_PROMPT_TOKENS})`,
      wholeNumberFlag(1, MOST_TOKENS),
    )
    .option(
      '--recall <share>',
      `experts that a synthetic trace predicts (default: ${ASSUMED_RECALL.sep}, of router-ahead ${ASSUMED_RECALL['router-ahead']})`,
      share,
    )
    .option('--acceptance <share>', 'tokens that shadow guesses in a synthetic trace', share, 0.98)
    .option('--seed <n>', 'of a synthetic trace', wholeNumberFlag(0, MOST_SEED), 1)
    .addOption(
      settingFlag(
        SETTINGS.emulation.expertStorage,
        '<form>',
        'how workers keep experts in their storage (default: as the model is shipped)',
      ).default(undefined),
    )
    .option('--slots <n>', 'experts in the memory of a worker', wholeNumberFlag(1, MOST_SLOTS))
    .option('--cache <size>', 'device memory in which a worker keeps experts between their uses', size)
    .option('--json', 'one JSON object on stdout', false);
}

export function addSetUpFlags(command: Command): Command {
  const { align, drafting, main, placement, prediction } = SETTINGS;
  const flags = [
    settingFlag(align.tokenPeriod, '<n>', 'iterations from one aligned token to the next, 0: never'),
    settingFlag(align.keyValuePeriod, '<n>', 'the same for keys and values'),
    settingFlag(align.streamKeyValues, '', 'keys and values leave at the end of an iteration'),
    settingFlag(
      main.prefillOverlap,
      '',
      "in prefill a layer's experts load once the router has chosen, and rows follow when all are there",
    ),
    settingFlag(drafting.optimistic, '', 'shadow goes on from its own guess'),
    settingFlag(drafting.rows, '<n|auto>', `positions of a pass, at most ${MAX_DRAFT_ROWS}`).default(1),
    settingFlag(placement.homes, '<whose>', "whose experts are: of the layer's group, or each its own worker's"),
    settingFlag(placement.replicas, '<n>', 'with --homes strict: workers of each expert'),
    settingFlag(placement.spread, '<who>', 'who gets experts'),
    settingFlag(prediction.source, '<how>', 'where predictions come from'),
    settingFlag(prediction.layersAhead, '<n>', 'with --prediction router-ahead: the router so many layers further on'),
    settingFlag(placement.groupSize, '<n|auto>', 'workers of a group'),
    new Option('--requests <n>', 'requests at a time').default(1).argParser(wholeNumberFlag(1, MOST_REQUESTS)),
    settingFlag(main.prefillRows, '<n>', 'positions of a prefill pass'),
    settingFlag(main.miniBatchRows, '<n>', 'rows of a prefill message'),
  ];
  for (const flag of flags) command.addOption(flag);
  return command;
}

/** Throws USAGE for a set-up that contradicts itself, like the daemons' configuration. */
export function setUpOf(flags: SimulateFlags): ClusterSetUp {
  const wantsDrafts = flags.optimistic || (flags.draftRows !== 'auto' && flags.draftRows > 1);
  if (flags.prediction !== 'sep' && wantsDrafts) {
    throw new OdmoeError('USAGE', `--prediction ${flags.prediction}: without a shadow there are no drafts to run`);
  }
  return {
    quality: DEFAULT_SET_UP.quality,
    workers: flags.workers,
    slots: flags.slots ?? DEFAULT_SET_UP.slots,
    cacheBytes: flags.cache ?? DEFAULT_SET_UP.cacheBytes,
    prefillRows: flags.prefillRows,
    miniBatchRows: flags.miniBatchRows,
    prefillOverlap: flags.prefillOverlap,
    align: { tokenPeriod: flags.alignToken, keyValuePeriod: flags.alignKv, streamKeyValues: flags.streamKv },
    drafting: { optimistic: flags.optimistic, rows: flags.draftRows, source: 'shadow', headExperts: 'auto' },
    prediction: { source: flags.prediction, layersAhead: flags.layersAhead },
    placement: { groupSize: flags.groupSize, spread: flags.spread, homes: flags.homes, replicas: flags.replicas },
  };
}

/** `prompts`: the number in a synthetic trace. Throws USAGE if a recorded trace's model has another number of experts than the profile's. */
export function openTrace(flags: TraceFlags, { name, model }: DeviceProfile, prompts = 1): ClusterTrace {
  const { expertLayers: layers, experts, expertsPerToken } = model.shape;
  if (flags.trace === 'synthetic') {
    return new SyntheticTrace({
      layers,
      experts,
      expertsPerToken,
      prompts,
      promptTokens: flags.promptTokens ?? DEFAULT_PROMPT_TOKENS,
      iterations: flags.tokens,
      recall: flags.recall ?? ASSUMED_RECALL[flags.prediction ?? 'sep'],
      acceptance: flags.acceptance,
      seed: flags.seed,
    });
  }
  const document = readTrace(flags.trace);
  if (document.experts !== experts || document.experts_per_token !== expertsPerToken) {
    throw new OdmoeError(
      'USAGE',
      `${flags.trace} is of a model with ${document.experts_per_token} of ${document.experts} experts a layer, ` +
        `the profile ${name} of one with ${expertsPerToken} of ${experts}: take a trace of a model like it`,
    );
  }
  return new RecordedTrace(document, layers);
}

export function share(value: string): number {
  const number = parseNumber(value);
  if (number >= 0 && number <= 1) return number;
  throw new InvalidArgumentError('Give a number from 0 to 1.');
}

function size(value: string): number {
  const bytes = parseByteSize(value);
  if (bytes !== null) return bytes;
  throw new InvalidArgumentError('Give a size, as 4GB or 512MiB.');
}
