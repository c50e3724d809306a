import { InvalidArgumentError, Option, type Command } from 'commander';
import { join } from 'node:path';
import { tableLines, type TableColumn } from '../../cli/output/table.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { standardError } from '../../shared/base/text/text-output.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import { ratioRows, type RatioRow } from './decode-ratios.js';
import { measureDecode, type DecodeRow } from './measure-decode.js';
import { ALL_VARIANTS, measureQuality, type QualityRow, type ThetaRow } from './measure-quality.js';
import type { MissesRow } from './measure-misses.js';
import { measurePhases, type PhasesRow } from './measure-phases.js';
import { measureServed, SERVED, type ServedRow } from './measure-served.js';
import { measureShadows, SHADOWS, type ShadowRow } from './measure-shadow.js';
import { recordedModel, syntheticModels, TRACE_SETTING, type ScoredModel } from './scored-models.js';
import { measureCodes, measureErrors, type CodesRow, type ErrorRow, type PlanesRow } from './measure-slices.js';

type SlicesRow =
  | CodesRow
  | PlanesRow
  | ErrorRow
  | QualityRow
  | ThetaRow
  | MissesRow
  | ShadowRow
  | ServedRow
  | DecodeRow
  | PhasesRow
  | RatioRow;

const MOST_RECORDS = 100_000;
const MOST_ITERATIONS = 65_536;

const MS_PER_S = 1000;
const US_PER_S = 1e6;

/** Parts of the measurement. Some have several tables. */
export const SLICES_PARTS = ['codes', 'mse', 'quality', 'shadow', 'served', 'decode', 'figure3'] as const;
type SlicesPart = (typeof SLICES_PARTS)[number];

interface SlicesFlags {
  only: SlicesPart[];
  records: number;
  prompts: number;
  tokens: number;
  trace?: string;
  json?: boolean;
}

const HELP = `
Variants: symH and asymH are codes of H bits; the others read the upper l bits of codes of h bits: amat(h,l) as the paper does,
centred(h,l) in the middle, asymtrunc(h,l) with the zero as it was, symshift(h,l) and symclip(h,l) from symmetric codes. dbsc(h,l) reads
both slices for executions whose renormalized weight is at least theta, and centred(h,l) for the others; "random" and "inverse" read
both slices for as many executions, drawn by chance, or those of the smallest weights.

error   squared errors over squared weights, of the matrices of all experts
KL      KL(lossless || variant), natural logarithm, mean over all predicted tokens of the records: prompt behind its first token, answer
        and end, each token given
agree   share of predicted tokens at which the most likely token is the same
right   share of records whose answer and end are, token by token, the most likely ones
recall  share of activated experts that a shadow predicts, aligned at every iteration, as "odmoe bench recall" measures it
bytes   of all matrices of that shadow; its routers, embedding and LM head are as shipped

The table figure8 has quality under a constraint on misses: misses are bytes fetched over those of a system with whole experts, met the
share of records that end below the constraint (part quality). high-bit caches whole experts, low-bit upper slices alone, AMAT reads both slices in the
prompt, and AMAT+DBSC reads them for critical executions of the answer, too.

The table served has decode of whole clusters on a virtual clock, whose time goes into loads from a slow storage: tokens a second and bytes
read, with lossless experts (exact) and with slices; nothing is cached.

The tables dbsc, energy, figure3 and ratio are modelled on synthetic traces, for SliceMoE's device (bench/profiles/ufs-lpddr4.yaml).
Lower slices leave the cache before any upper one, as the paper says; in rows with spare-critical they do so only beyond the share of the
cache that critical executions read, so that they are not fetched again and again from a full cache.
With --trace they are modelled on recorded scores, with the pair (8,4) and caches of an eighth, a fourth and half of all experts.
To measure the energy of a machine that has counters, run "odmoe bench generate" and "odmoe bench expert" there.

Examples:
  odmoe bench slices --json > slices.json
  odmoe bench slices --only shadow,served
  odmoe bench trace demo-trace.json && odmoe bench slices --trace demo-trace.json`;

/** Adds `odmoe bench slices`. */
export function registerBenchSlices(bench: Command, run: MeasuredRun): void {
  bench
    .command('slices')
    .description(
      "what slices make of a checkpoint's experts (SliceMoE): codes, errors, and predictions of each variant of table 1",
    )
    .argument('[checkpoint]', 'a checkpoint with BF16 experts', join(packageRoot(), 'models', 'demo'))
    .addOption(
      new Option('--only <list>', `of ${SLICES_PARTS.join(',')}`).argParser(parts).default([...SLICES_PARTS], 'all'),
    )
    .option(
      '--records <count>',
      "measure predictions on so many of the checkpoint's quality.jsonl",
      wholeNumberFlag(1, MOST_RECORDS),
      300,
    )
    .option(
      '--prompts <count>',
      'measure shadows on so many prompts of "odmoe bench recall"',
      wholeNumberFlag(1, MOST_PROMPTS),
      60,
    )
    .option('--tokens <count>', 'decode iterations of such a prompt', wholeNumberFlag(1, MOST_ITERATIONS), 256)
    .option('--trace <file>', "only the modelled tables, from the scores of a trace that this checkpoint's model gave")
    .option('--json', 'one JSON array on stdout, with a field "table" in each row')
    .addHelpText('after', HELP)
    .action(async (checkpoint: string, flags: SlicesFlags) => {
      const rows =
        flags.trace === undefined
          ? await measureParts(checkpoint, flags)
          : modelledRows([await recordedModel(flags.trace, checkpoint)]);
      run.print(rows, flags.json === true, () => asTables(rows));
    });
}

/** Says on standard error how long each part took. */
async function measureParts(checkpoint: string, flags: SlicesFlags): Promise<SlicesRow[]> {
  const rows: SlicesRow[] = [];
  for (const part of flags.only) {
    const startedMs = performance.now();
    const before = process.cpuUsage();
    rows.push(...(await measurePart(part, checkpoint, flags)));
    const { user, system } = process.cpuUsage(before);
    const wallS = (performance.now() - startedMs) / MS_PER_S;
    const processorS = (user + system) / US_PER_S;
    standardError.write(`${part}: ${wallS.toFixed(1)} s, ${processorS.toFixed(1)} s of processor time\n`);
  }
  return rows;
}

async function measurePart(
  part: SlicesPart,
  checkpoint: string,
  { records, prompts, tokens: iterations }: SlicesFlags,
): Promise<SlicesRow[]> {
  const onProgress = (variant: string): void => {
    if (standardError.isTerminal) standardError.write(`predictions of ${variant}\n`);
  };
  switch (part) {
    case 'codes':
      return measureCodes(checkpoint);
    case 'mse':
      return measureErrors(checkpoint);
    case 'quality':
      return measureQuality(checkpoint, { records, ...ALL_VARIANTS, onProgress });
    case 'shadow':
      return measureShadows(checkpoint, {
        prompts,
        iterations,
        shadows: SHADOWS,
        onProgress: (name) => onProgress(`a shadow of experts ${name}`),
      });
    case 'served':
      return measureServed(checkpoint, SERVED);
    case 'decode':
      return decodeRows(syntheticModels(TRACE_SETTING));
    case 'figure3':
      return measurePhases(syntheticModels(TRACE_SETTING));
  }
}

/** The tables dbsc, energy, figure3 and ratio. */
function modelledRows(models: readonly ScoredModel[]): SlicesRow[] {
  return [...decodeRows(models), ...measurePhases(models)];
}

function decodeRows(models: readonly ScoredModel[]): SlicesRow[] {
  const decode = measureDecode(models);
  return [...decode, ...ratioRows(decode)];
}

function parts(text: string): SlicesPart[] {
  const asked = text.split(',').map((name) => name.trim());
  const unknown = asked.find((name) => !SLICES_PARTS.some((part) => part === name));
  if (unknown !== undefined) throw new InvalidArgumentError(`expected a list of ${SLICES_PARTS.join(', ')}`);
  return SLICES_PARTS.filter((part) => asked.includes(part));
}

function asTables(rows: readonly SlicesRow[]): string {
  const left = (title: string): TableColumn => ({ title, align: 'left' });
  const right = (title: string): TableColumn => ({ title, align: 'right' });
  const planes = rows.flatMap((row) => (row.table === 'planes' ? [[row.pair, row.sha256_q, row.sha256_z]] : []));
  const errors = rows.flatMap((row) => (row.table === 'mse' ? [[row.variant, row.value.toExponential(3)]] : []));
  const decode = rows.flatMap((row) => (row.table === 'dbsc' || row.table === 'energy' ? [decodeCells(row)] : []));
  const ratios = rows.flatMap((row) => (row.table === 'ratio' ? [ratioCells(row)] : []));
  const quality = rows.flatMap((row) => (row.table === 'quality' ? [qualityCells(row)] : []));
  const thetas = rows.flatMap((row) => (row.table === 'theta' ? [thetaCells(row)] : []));
  const shadows = rows.flatMap((row) => (row.table === 'shadow' ? [shadowCells(row)] : []));
  const misses = rows.flatMap((row) => (row.table === 'figure8' ? [missesCells(row)] : []));
  const phases = rows.flatMap((row) => (row.table === 'figure3' ? [phasesCells(row)] : []));
  const served = rows.flatMap((row) => (row.table === 'served' ? [servedCells(row)] : []));
  const tables: [columns: TableColumn[], cells: string[][]][] = [
    [[left('pair'), left('SHA-256 of the codes'), left('SHA-256 of the zeros')], planes],
    [[left('variant'), right('error')], errors],
    [[...DECODE_TEXTS.map(left), ...DECODE_NUMBERS.map(right)], decode],
    [[left('model'), left('phase'), ...['steps', 'used', 'top tenth', "prompt's"].map(right)], phases],
    [[...RATIO_TEXTS.map(left), ...RATIO_NUMBERS.map(right)], ratios],
    [[left('variant'), ...['KL', 'agree', 'perplexity', 'of answers', 'right'].map(right)], quality],
    [[left('pair'), ...['theta', 'critical', 'KL'].map(right)], thetas],
    [[left('policy'), left('pair'), ...['at most', 'misses', 'met', 'KL', 'agree'].map(right)], misses],
    [[left('experts'), left('attention'), right('recall'), right('bytes')], shadows],
    [[...['cluster', 'quality'].map(left), ...SERVED_NUMBERS.map(right)], served],
  ];
  const measured = tables.filter(([, cells]) => cells.length > 0);
  return `${measured.map(([columns, cells]) => tableLines(columns, cells).join('\n')).join('\n\n')}\n`;
}

const SERVED_NUMBERS = ['tokens/s', 'speed-up', 'loads', 'bytes read', 'over the link', 'a load'] as const;

function qualityCells({ variant, kl, agree, ppl_all, ppl_answer, right }: QualityRow): string[] {
  return [
    variant,
    kl.toExponential(3),
    agree.toFixed(4),
    ppl_all.toPrecision(5),
    ppl_answer.toPrecision(5),
    right.toFixed(4),
  ];
}

function missesCells({ policy, pair, target, misses, met, kl, agree }: MissesRow): string[] {
  return [policy, pair, String(target), misses.toFixed(4), met.toFixed(3), kl.toExponential(3), agree.toFixed(4)];
}

function phasesCells({
  model,
  phase,
  steps,
  used,
  top_tenth: top,
  top_tenth_of_prompt: ofPrompt,
}: PhasesRow): string[] {
  return [model, phase, String(steps), used.toFixed(3), top.toFixed(3), ofPrompt.toFixed(3)];
}

function shadowCells({ experts, attention, recall, bytes }: ShadowRow): string[] {
  return [experts, attention, recall.toFixed(4), String(bytes)];
}

function servedCells(row: ServedRow): string[] {
  const cluster = `${row.workers} ${row.workers === 1 ? 'worker' : 'workers'}, ${row.prediction === 'off' ? 'no predictions' : 'a shadow'}`;
  const speeds = [row.tokens_per_s, row.speedup].map((value) => value.toFixed(2));
  const counts = [row.loads, row.read_bytes, row.link_bytes, Math.round(row.bytes_a_load)].map(String);
  return [cluster, row.quality, ...speeds, ...counts];
}

function thetaCells({ pair, theta, critical, kl }: ThetaRow): string[] {
  return [pair, theta.toFixed(4), critical.toFixed(4), kl.toExponential(3)];
}

const DECODE_TEXTS = ['table', 'model', 'policy', 'start'] as const;
const DECODE_NUMBERS = ['GB', 'lambda', 'steps', 'modelled mJ', 'modelled ms', 'mass', 'high', 'misses'] as const;

/** Energies and times below it are of a small model, and get more digits. */
const MOST_SMALL = 10;

function decodeCells(row: DecodeRow): string[] {
  const { table, model, policy, start, cache_gb: cacheGb, lambda, steps, mj, ms, mass, high, misses, target } = row;
  const named = target === null ? policy : `${policy} <= ${target}: ${row.lever}`;
  const setting = [Number(cacheGb.toPrecision(3)), lambda ?? `p ${row.p}`, steps].map(String);
  return [
    table,
    model,
    named,
    start,
    ...setting,
    ...[mj, ms].map((value) => value.toFixed(value < MOST_SMALL ? 3 : 1)),
    ...[mass, high, misses].map(threeDecimals),
  ];
}

const RATIO_TEXTS = ['model', 'compared', 'held equal'] as const;
const RATIO_NUMBERS = ['GB', 'energy', "paper's", 'speed', "paper's"] as const;

function ratioCells(row: RatioRow): string[] {
  const cell = (value: number | null): string => (value === null ? '-' : value.toFixed(2));
  const numbers = [row.energy, row.paper_energy, row.speed, row.paper_speed].map(cell);
  return [row.model, row.compared, row.held, String(row.cache_gb), ...numbers];
}

function threeDecimals(value: number): string {
  return value.toFixed(3);
}
