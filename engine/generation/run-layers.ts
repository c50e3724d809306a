/** Runs the layers of a pass whose experts are in slots, as main runs them with workers: attend, execute, combine. */
import type { ExpertSlots, Pass, RouterChoice } from '../../native/index.js';
import type { ActivatedRow } from '../../shared/decisions/placement/activated-experts.js';
import { type ExpertRowShape, expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';

const FLOAT_BYTES = 4;

/** One layer of a pass: the input of its experts, rows x expertRowSize FP32, and their outputs, rows x expertsPerToken x expertRowSize by rank. */
export interface LayerBuffers {
  readonly hidden: Uint8Array;
  readonly outputs: Uint8Array;
}

/** Fills the outputs of all executions of a layer, and returns their weights. */
export type RunExperts = (layer: number, choice: RouterChoice, buffers: LayerBuffers) => Promise<Float32Array>;

/** Runs all layers of a pass that has begun with so many rows. */
export async function runLayers(pass: Pass, shape: ModelShape, rows: number, runExperts: RunExperts): Promise<void> {
  const { expertsPerToken, expertLayers } = shape;
  const hidden = new Uint8Array(rows * expertRowSize(shape) * FLOAT_BYTES);
  const outputs = new Uint8Array(hidden.length * expertsPerToken);
  for (let layer = 0; layer < expertLayers; layer += 1) {
    const choice = await pass.attend(layer, hidden);
    const weights = await runExperts(layer, choice, { hidden, outputs });
    await pass.combine(layer, outputs, weights);
  }
}

/** Runs the expert in a slot for some rows of a layer, none included. */
export async function executeRows(
  slots: Pick<ExpertSlots, 'execute'>,
  slot: number,
  rows: readonly ActivatedRow[],
  { hidden, outputs }: LayerBuffers,
  { expertsPerToken, ...shape }: ExpertRowShape & Pick<ModelShape, 'expertsPerToken'>,
): Promise<void> {
  if (rows.length === 0) return;
  const rowBytes = expertRowSize(shape) * FLOAT_BYTES;
  const input = new Uint8Array(rows.length * rowBytes);
  const output = new Uint8Array(input.length);
  rows.forEach(({ row }, at) => {
    input.set(hidden.subarray(row * rowBytes, (row + 1) * rowBytes), at * rowBytes);
  });
  const readings = rows.flatMap(({ reading }) => (reading === undefined ? [] : [reading]));
  await slots.execute(slot, rows.length, input, output, readings);
  rows.forEach(({ row, rank }, at) => {
    const ofRow = output.subarray(at * rowBytes, (at + 1) * rowBytes);
    outputs.set(ofRow, (row * expertsPerToken + rank) * rowBytes);
  });
}
