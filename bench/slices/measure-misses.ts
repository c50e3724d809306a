/**
 * The table `figure8` (SliceMoE, figure 8): quality under a constraint on misses, without warm-up by the prompt. Each token of a record behind the first ones is given, and
 * chooses experts and precision by the logical cache of its record, as the quality sliced(h,l,cached=BYTES,miss=P) does.
 */
import type { ExpertSlots, Model } from '../../native/index.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { MISS_TARGETS } from '../../shared/decisions/slices/miss-budget.js';
import { routersOf } from '../../shared/decisions/slices/output-weights.js';
import type { DecisionRules } from '../../shared/decisions/slices/sequence-decisions.js';
import { predictionOf, QualitySums, type Prediction } from './compare-logits.js';
import { decodeForced, type ReadsHigh } from './forced-decode.js';
import { sliceSizesOf } from './modelled-cost.js';
import type { QualityRecord } from './quality-records.js';
import type { SlicePair } from './quantize-group.js';

export interface MissesRow {
  table: 'figure8';
  policy: string;
  pair: string;
  /** Highest allowed share of missed bytes; the cache has room for this share of all experts with both slices. */
  target: number;
  capacity: number;
  /** Bytes fetched over those that a system with whole experts asks for, mean over the records. Those of the first decode steps do not count. */
  misses: number;
  /** The share of records that end below the target. */
  met: number;
  kl: number;
  agree: number;
}

/** Tokens of a record that count as its prompt. All behind them are decode steps: most answers are shorter than the steps that are not counted. */
const PROMPT_TOKENS = 32;
/** The cache has room for so much of all experts. */
const CAPACITY = 0.25;

interface MissPolicy {
  readonly name: string;
  /** False: experts are cached whole, with all bits. */
  readonly isSliced: boolean;
  /** The precision of rows of the prompt. */
  readonly prompt: 'high' | 'low';
  /** Critical executions of the answer read both slices. */
  readonly hasCritical: boolean;
}

/** As figure 8 names them. */
export const MISS_POLICIES: readonly MissPolicy[] = [
  { name: 'high-bit', isSliced: false, prompt: 'high', hasCritical: false },
  { name: 'low-bit', isSliced: true, prompt: 'low', hasCritical: false },
  { name: 'AMAT', isSliced: true, prompt: 'high', hasCritical: false },
  { name: 'AMAT+DBSC', isSliced: true, prompt: 'high', hasCritical: true },
];

export interface MissesMaterial {
  readonly model: Model;
  readonly records: readonly QualityRecord[];
  /** By record and token. */
  readonly lossless: readonly (readonly Prediction[])[];
  readonly pair: SlicePair;
  /** All experts with both slices, and with upper slices alone. */
  readonly slots: Readonly<Record<'high' | 'low', ExpertSlots>>;
  /** Renormalized weight from which an execution is critical. */
  readonly theta: number;
}

/** A row for each policy and target. */
export async function measureMisses(
  material: MissesMaterial,
  onProgress: (policy: string) => void,
): Promise<MissesRow[]> {
  const rows: MissesRow[] = [];
  for (const policy of MISS_POLICIES) {
    for (const target of MISS_TARGETS) {
      onProgress(`${policy.name} with at most ${target} of misses`);
      rows.push(await measureOne(material, policy, target));
    }
  }
  return rows;
}

async function measureOne(material: MissesMaterial, policy: MissPolicy, target: number): Promise<MissesRow> {
  const { model, records, lossless, pair, slots } = material;
  const sums = new QualitySums();
  const readsHigh: ReadsHigh = (isPrompt, reading) =>
    isPrompt ? policy.prompt === 'high' : !policy.isSliced || reading === 'both';
  const reports = await decodeForced(
    { model, records, promptTokens: PROMPT_TOKENS, slots, readsHigh, rules: rulesOf(material, policy, target) },
    (number, index, logits) => {
      const record = requirePresent(records[number], 'a pass runs known records.');
      const expected = requirePresent(lossless[number]?.[index], 'the lossless passes ran first.');
      const token = requirePresent(record.tokenIds[index + 1], 'the last token of a record does not run.');
      sums.add(number, token, index + 1 >= record.answerFrom, { lossless: expected, variant: predictionOf(logits) });
    },
  );
  const { kl, agree } = sums.figures(records.length);
  // Short records end before the constraint counts.
  const counted = reports.filter(({ missShare }) => missShare !== null);
  const misses = counted.reduce((sum, { missShare }) => sum + (missShare ?? 0), 0) / counted.length;
  const met = counted.filter(({ isMet }) => isMet).length / counted.length;
  const name = `(${pair.high},${pair.low})`;
  return { table: 'figure8', policy: policy.name, pair: name, target, capacity: CAPACITY, misses, met, kl, agree };
}

function rulesOf(
  { model: { shape }, pair, theta }: MissesMaterial,
  { isSliced, hasCritical }: MissPolicy,
  missTarget: number,
): DecisionRules {
  const sizes = sliceSizesOf(shape, pair);
  const wholeBytes = sizes.upperBytes + sizes.lowerBytes;
  const { expertLayers: layers, experts, expertsPerToken } = shape;
  const cache = {
    ...(isSliced ? sizes : { upperBytes: wholeBytes, lowerBytes: 0 }),
    layers,
    experts,
    capacityBytes: CAPACITY * layers * experts * wholeBytes,
  };
  const sequence = {
    cache,
    expertsPerToken,
    routing: { kind: 'top-k' },
    lowerFetch: 'wait',
    theta: hasCritical ? theta : Infinity,
    missTarget,
    start: 'last-layer',
    seed: 1,
  } as const;
  return { sequence, routers: routersOf(shape) };
}
