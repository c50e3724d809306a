import { totalmem } from 'node:os';
import { FROM_STORAGE, type Device, type ExpertSlots, type LoadRequest, type PartPlan } from '../../native/index.js';
import type { ExpertSource, ModelSource } from '../../shared/model/tensor-source.js';
import { perPart, recordOf, sumOfParts } from '../../shared/model/expert-parts.js';
import { isInMemory, PARTLY_LOADED_STATES, type PartlyLoadedState } from '../../shared/decisions/caching/load-times.js';
import { expertBytesByPart, fitMachineTimes, type MachineTimes, type MeasuredLoads } from './fit-machine-times.js';
import type { SlotSizes } from './slot-sizes.js';

/** Rounds of loads, and the time after which no further round begins. */
const ROUNDS = 24;
const PROFILE_LIMIT_MS = 4000;
/** The share of the machine's memory that the page cache can use for a model in the long run. */
const CACHED_SHARE = 0.5;

/**
 * Measures u, v, c, rho and L of ZipMoE (section 3.3, appendix C). It loads and executes experts from the whole pack, from each of the four
 * states in which a cache can leave them. `atOnce` experts are loaded together, like those of a layer, so that reading, decompressing and
 * executing disturb each other as in real use. The lower quartile of the rounds counts, so that a machine that is busy for a moment does not
 * matter; the first round counts only if it is the only one. Takes device memory for `atOnce` slots and entries of each kind.
 *
 * Each round's experts are loaded once before they are timed, so that all four states find their files in the same place: in the page cache if
 * the machine's memory could hold the model's experts, otherwise in storage, without the page cache.
 * @throws the errors of loading: PACK_CORRUPT, STORAGE_FAILED, DEVICE_OUT_OF_MEMORY
 */
export async function measureMachineTimes(
  device: Device,
  source: ModelSource,
  { shape, loader }: SlotSizes,
  atOnce: number,
  nowMs: () => number,
): Promise<MachineTimes> {
  const entries = perPart(() => atOnce);
  const bytes = expertBytesByPart(source.expert(0, 0));
  const modelBytes = source.shape.expertLayers * source.shape.experts * sumOfParts(bytes.stored);
  const directIo = loader.directIo || modelBytes > totalmem() * CACHED_SHARE;
  const slots = device.createExpertSlots(shape, atOnce, 1, { ...loader, entries, directIo });
  const rounds: MeasuredLoads[] = [];
  const beganMs = nowMs();
  try {
    for (let round = 0; round < ROUNDS && (round === 0 || nowMs() - beganMs < PROFILE_LIMIT_MS); round += 1) {
      const experts = expertsOfRound(source, round, atOnce).map((expert) => slots.register(expert));
      rounds.push(await runRound(slots, experts, shape.hiddenSize, nowMs));
    }
  } finally {
    slots.dispose();
  }
  return fitMachineTimes(
    quietRounds(rounds.slice(-Math.max(1, rounds.length - 1))),
    bytes,
    loader.decompressionThreads,
  );
}

/** Experts from places all over the model. */
function expertsOfRound(source: ModelSource, round: number, atOnce: number): ExpertSource[] {
  const { expertLayers, experts } = source.shape;
  return Array.from({ length: atOnce }, (_, index) => {
    const place = Math.floor(((round * atOnce + index) * expertLayers * experts) / (ROUNDS * atOnce));
    return source.expert(Math.floor(place / experts), place % experts);
  });
}

async function runRound(
  slots: ExpertSlots,
  experts: readonly number[],
  hiddenSize: number,
  nowMs: () => number,
): Promise<MeasuredLoads> {
  const makespanMs = recordOf(PARTLY_LOADED_STATES, () => 0);
  const executions: number[] = [];
  const reads: number[] = [];
  const hidden = new Uint8Array(hiddenSize * Float32Array.BYTES_PER_ELEMENT);
  const makespanOf = async (state: PartlyLoadedState, together: readonly number[]): Promise<number> => {
    const startMs = nowMs();
    await settleAll(
      together.map(async (expert, slot) => {
        const { readMs } = await slots.load(slot, expert, requestFrom(state, slot));
        if (state === 'missing') reads.push(sumOfParts(readMs));
        executions.push((await slots.execute(slot, 1, hidden, hidden.slice())).executeMs);
      }),
    );
    return nowMs() - startMs;
  };
  await settleAll(experts.map((expert, slot) => slots.load(slot, expert, keepAll(slot))));
  for (const state of PARTLY_LOADED_STATES) makespanMs[state] = await makespanOf(state, experts);
  const oneCompressedMs = await makespanOf('compressed', experts.slice(0, 1));
  return { atOnce: experts.length, makespanMs, oneCompressedMs, executeMs: mean(executions), readMs: mean(reads) };
}

/** Waits for all, so that nothing is still under way when one has failed. */
async function settleAll(work: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === 'rejected') throw result.reason;
}

/** The parts in memory are in the entries with the slot's number. */
function requestFrom(state: PartlyLoadedState, slot: number): LoadRequest {
  const fromEntry: PartPlan = { from: 'entry', entry: slot };
  const parts = perPart((part) => (isInMemory(state, part) ? fromEntry : FROM_STORAGE.parts[part]));
  return { ...FROM_STORAGE, parts };
}

function keepAll(slot: number): LoadRequest {
  const read: PartPlan = { from: 'storage', entry: slot };
  return { ...FROM_STORAGE, parts: perPart(() => read) };
}

function quietRounds(rounds: readonly MeasuredLoads[]): MeasuredLoads {
  const of = (figure: (round: MeasuredLoads) => number): number => lowerQuartile(rounds.map(figure));
  return {
    atOnce: rounds[0]?.atOnce ?? 1,
    makespanMs: recordOf(PARTLY_LOADED_STATES, (state) => of(({ makespanMs }) => makespanMs[state])),
    oneCompressedMs: of((round) => round.oneCompressedMs),
    readMs: of(({ readMs }) => readMs),
    executeMs: of(({ executeMs }) => executeMs),
  };
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function lowerQuartile(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 4)] ?? 0;
}
