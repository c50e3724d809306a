/** A program that prints a digest of the residual streams and logits of every random shape's model, on the CUDA device that the environment sets. */
import { createHash } from 'node:crypto';
import type { Device, Model, Sequence } from '../../../native/index.js';
import { RandomWeights } from '../../unit/native-random-model.js';
import { openTestDevice } from '../../unit/native-test-model.js';
import { RANDOM_SHAPES } from '../../unit/random-model-shapes.js';

/** PIECES: positions of each pass. TAKEN_BACK: positions that then run again, with the same tokens in a fork and with others in the sequence. */
const PIECES = [70, 1, 1, 40];
const TAKEN_BACK = 20;

async function run(model: Model, pieces: readonly number[]): Promise<Buffer[]> {
  const logits: Buffer[] = [];
  const runOn = async (sequence: Sequence, rows: number, tokenFactor: number): Promise<void> => {
    const from = sequence.length;
    const pass = model.createPass(rows);
    const positions = Int32Array.from({ length: rows }, (_, i) => from + i);
    await pass.begin(
      [sequence],
      new Int32Array(rows),
      positions,
      positions.map((position) => (position * tokenFactor + 5) % 61),
    );
    const states = new Float32Array(rows * model.shape.hiddenSize);
    await pass.residual(states);
    logits.push(Buffer.from(states.slice().buffer));
    await pass.forward(null);
    await pass.residual(states);
    logits.push(Buffer.from(states.buffer));
    const given = await pass.logits(Int32Array.from({ length: rows }, (_, i) => i));
    logits.push(Buffer.from(given.buffer));
    pass.dispose();
  };
  const sequence = model.createSequence();
  for (const rows of pieces) await runOn(sequence, rows, 17);
  const fork = sequence.fork(sequence.length - TAKEN_BACK);
  sequence.truncate(fork.length);
  await runOn(sequence, TAKEN_BACK, 19);
  await runOn(fork, TAKEN_BACK, 17);
  await runOn(sequence, 1, 17);
  for (const handle of [sequence, fork]) handle.dispose();
  return logits;
}

/** Digests by the name of the shape. */
export async function logitDigests(device: Device): Promise<Record<string, string>> {
  const digests: Record<string, string> = {};
  for (const [name, shape] of Object.entries(RANDOM_SHAPES)) {
    const weights = new RandomWeights(shape);
    const model = await weights.load(device, true);
    const hash = createHash('sha256');
    for (const logits of await run(model, PIECES)) hash.update(logits);
    digests[name] = hash.digest('hex');
    model.dispose();
    weights.dispose();
  }
  return digests;
}

if (process.argv[1] === import.meta.filename) {
  const device = openTestDevice({ backend: 'cuda' });
  console.log(JSON.stringify(await logitDigests(device)));
  device.dispose();
}
