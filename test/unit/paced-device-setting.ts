import assert from 'node:assert/strict';
import { pacedDevice } from '../../engine/emulation/paced-device.js';
import type { DevicePace } from '../../engine/emulation/device-pace.js';
import type { Device, Model, Pass, Sequence } from '../../native/index.js';
import { type DeviceBytes, type DeviceTimes, operatorMs } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { FIXTURE_SHAPE, fixtureReference, loadFixture, openTestDevice } from './native-test-model.js';
import { onVirtualClock } from './virtual-run.js';

const { hiddenSize, expert: glu } = FIXTURE_SHAPE;
/** Time of main's part of a layer. */
export const DENSE_LAYER = { overheadMs: 1, weightsMs: 2, rowMs: 0.75, context: [] };
export const TIMES: DeviceTimes = {
  attendLayers: [[DENSE_LAYER]],
  layersBehind: [],
  router: { overheadMs: 0, weightsMs: 0.5, rowMs: 0 },
  expert: { overheadMs: 0.5, weightsMs: 1, rowMs: 1.5 },
  lmHead: { overheadMs: 1, weightsMs: 3, rowMs: 1 },
  loadMs: 12,
  exponentShare: 0.25,
  recoverMs: 1,
};
export const BYTES: DeviceBytes = {
  outerBytes: 10_000,
  denseLayerBytes: 1000,
  expertBytes: 300,
  slotBytes: 200,
  slotSharedBytes: 50,
  exponentEntryBytes: 7,
  signMantissaEntryBytes: 11,
  cacheRowBytes: 2,
  stateBytes: 0,
};
export const EXPERT_SHAPE = { hiddenSize, glu, format: 'bf16' } as const;
export const PROMPT = (fixtureReference.references[0]?.prompt_token_ids ?? []).slice(0, 5);
export const codeIs = (code: ErrorCode) => (thrown: unknown) => thrown instanceof OdmoeError && thrown.code === code;

/** Runs the body with a paced device on a virtual clock. Both devices are disposed of afterwards, and no event is left. */
export async function onPaced(
  body: (device: Device, runtime: VirtualRuntime) => Promise<void>,
  pace: Partial<DevicePace> = {},
): Promise<void> {
  await onVirtualClock(async (runtime) => {
    const arithmetic = openTestDevice({ threads: 1 });
    const device = pacedDevice(
      arithmetic,
      { times: TIMES, memory: { bytes: BYTES, budgetBytes: 0 }, ...pace },
      runtime,
    );
    try {
      await body(device, runtime);
    } finally {
      device.dispose();
    }
  });
}

export async function begin(pass: Pass, sequence: Sequence, tokens: readonly number[]): Promise<void> {
  const positions = Int32Array.from(tokens, (_, i) => sequence.length + i);
  await pass.begin([sequence], new Int32Array(tokens.length), positions, Int32Array.from(tokens));
}

export interface Run {
  gates: { layer: number; experts: number[]; atMs: number }[];
  forwardMs: number;
  logitsMs: number;
  logits: Float32Array;
}

export async function run(model: Model, tokens: readonly number[], nowMs: () => number): Promise<Run> {
  const sequence = model.createSequence();
  const pass = model.createPass(tokens.length);
  await begin(pass, sequence, tokens);
  const gates: Run['gates'] = [];
  const startMs = nowMs();
  await pass.forward((layer, choice) => {
    gates.push({ layer, experts: [...choice.experts], atMs: nowMs() - startMs });
  });
  const forwardMs = nowMs() - startMs;
  assert.equal(sequence.length, tokens.length);
  const logits = await pass.logits(Int32Array.of(tokens.length - 1));
  const logitsMs = nowMs() - startMs - forwardMs;
  pass.dispose();
  sequence.dispose();
  return { gates, forwardMs, logitsMs, logits };
}

/** Time of all experts of a layer, one after the other, each on its rows. */
export function expertsMs(chosen: readonly number[]): number {
  const rows = new Map<number, number>();
  chosen.forEach((expert) => rows.set(expert, (rows.get(expert) ?? 0) + 1));
  return [...rows.values()].reduce((sum, count) => sum + operatorMs(TIMES.expert, count), 0);
}

/** The same run on the processor alone. */
export async function realRun(tokens: readonly number[]): Promise<Run> {
  const real = openTestDevice();
  const result = await run(await loadFixture(real, { experts: true }), tokens, () => 0);
  real.dispose();
  return result;
}

export const near = (actual: number, expected: number): void => {
  assert.ok(Math.abs(actual - expected) < 1e-9, `${actual} ms, not ${expected}`);
};
