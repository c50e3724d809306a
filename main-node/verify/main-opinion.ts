import { FROM_STORAGE, PLAIN_LOADER, type Device } from '../../native/index.js';
import { partSizes } from '../../shared/model/part-sizes.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { RuledSlices } from '../../engine/loading/open-for-quality.js';
import { expertShape } from '../../engine/loading/expert-shape.js';
import { executeRows } from '../../engine/generation/run-layers.js';
import type { DrawnCheck } from './drawn-check.js';

const SLOT = 0;

/** The parts of main that run an expert from its own pack. */
export interface ExpertsOfMain {
  readonly device: Device;
  readonly source: ModelSource;
  readonly sliced: RuledSlices | null;
}

/**
 * Runs a drawn execution on main's own device: loads the expert from main's pack into a slot for it alone, and gives the memory back. Two workers
 * that differ are rare, so main holds no slot for this.
 * @throws DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, STORAGE_FAILED, DEVICE_LOST
 */
export async function runOnMain(
  { device, source, sliced }: ExpertsOfMain,
  { work, hidden }: Pick<DrawnCheck, 'work' | 'hidden'>,
): Promise<Uint8Array> {
  const { layer, expert, rows } = work;
  const stored = sliced === null ? source.expert(layer, expert) : sliced.slices.expert(layer, expert);
  const loader = { ...PLAIN_LOADER, ...partSizes([stored]) };
  const slots = device.createExpertSlots(
    expertShape(source.shape, sliced?.slices.split ?? null, () => [stored]),
    SLOT + 1,
    rows.length,
    loader,
  );
  try {
    const readsLower = sliced !== null && rows.some(({ reading }) => reading === 'both');
    if (readsLower) slots.takeLower(SLOT);
    const { exponent } = FROM_STORAGE.parts;
    const parts = { exponent, signMantissa: { ...exponent, from: 'notWanted' as const } };
    const request = sliced === null || readsLower ? FROM_STORAGE : { ...FROM_STORAGE, parts };
    await slots.load(SLOT, slots.register(stored), request);
    const outputs = new Uint8Array(hidden.byteLength);
    const only = rows.map((row) => ({ ...row, rank: 0 }));
    await executeRows(slots, SLOT, only, { hidden, outputs }, { ...source.shape, expertsPerToken: 1 });
    return outputs;
  } finally {
    slots.dispose();
  }
}
