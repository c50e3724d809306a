/**
 * Records the states that the expert layers of a model meet, and the choices of their routers. No machine needs to hold the model: many passes
 * go through it together, layer by layer, and each expert of a layer is loaded once for all of them.
 */
import {
  type Device,
  type ExpertSlots,
  FROM_STORAGE,
  type Model,
  type Pass,
  PLAIN_LOADER,
  type RouterChoice,
  type Sequence,
} from '../../native/index.js';
import { type ActivatedRow, activatedExperts } from '../../shared/decisions/placement/activated-experts.js';
import { expertRowSize } from '../../shared/model/model-shape.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { expertsIn } from '../generation/passing-experts.js';
import { RegisteredExperts } from '../loading/registered-experts.js';
import { executeRows, type LayerBuffers } from '../generation/run-layers.js';
import { throwIfInterrupted } from './interruption.js';

const FLOAT_BYTES = 4;
const SLOT = 0;
/** Most rows of a pass, and of an execution. */
export const PASS_ROWS = 512;

/** The recorded rows of one layer. */
export interface RecordedRows {
  readonly layer: number;
  readonly firstRow: number;
  /** Rows x hiddenSize. */
  readonly states: Float32Array;
  /** Rows x expertsPerToken. */
  readonly choices: Int32Array;
}

export interface Recorder {
  readonly device: Device;
  /** With its dense weights. */
  readonly model: Model;
  readonly source: ModelSource;
  /** Memory that native code and the buffers of passes may take. */
  readonly memoryBytes: number;
  readonly signal: AbortSignal;
  readonly record: (rows: RecordedRows) => Promise<void>;
  /** All rows before this one have been recorded at every layer. */
  readonly waveDone: (rows: number) => Promise<void>;
  /** Layers of rows that are done, of all. */
  readonly onProgress: (done: number, total: number) => void;
}

/**
 * Runs the sequences, none longer than PASS_ROWS, from `firstRow` on: it must be the first row of a sequence.
 * @throws CANCELLED, DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, MODEL_CORRUPT, STORAGE_FAILED, STORAGE_FULL
 */
export async function recordLayers(
  recorder: Recorder,
  sequences: readonly (readonly number[])[],
  firstRow: number,
): Promise<void> {
  const slots = createSlot(recorder);
  const { source } = recorder;
  const registered = new RegisteredExperts(slots, source.shape.experts, (layer, expert) =>
    source.expert(layer, expert),
  );
  try {
    const groups = rowGroups(sequences).filter((group) => group.firstRow >= firstRow);
    let next = 0;
    while (next < groups.length) {
      const wave = Wave.open(recorder, groups.slice(next));
      const done = next;
      next += wave.passes.length;
      try {
        const onLayer = (layer: number): void => {
          const { expertLayers } = recorder.model.shape;
          recorder.onProgress(done * expertLayers + layer * wave.passes.length, groups.length * expertLayers);
        };
        await wave.run({ slots, registered }, onLayer);
      } finally {
        wave.close();
      }
      await recorder.waveDone(wave.endRow);
    }
  } finally {
    slots.dispose();
  }
}

function createSlot({ device, model: { shape }, source }: Recorder): ExpertSlots {
  const { format, shipped, sizes } = expertsIn('shipped', source);
  const { expert: glu } = shape;
  const hiddenSize = expertRowSize(shape);
  return device.createExpertSlots(
    { hiddenSize, glu, format, ...(shipped === undefined ? {} : { shipped }) },
    1,
    PASS_ROWS,
    { ...PLAIN_LOADER, ...sizes },
  );
}

/** The sequences of one pass, and the place of their first row among all rows. */
export interface RowGroup {
  readonly firstRow: number;
  readonly rows: number;
  readonly sequences: readonly (readonly number[])[];
}

/** Whole sequences in passes, in their order. Pure. */
export function rowGroups(sequences: readonly (readonly number[])[], most = PASS_ROWS): RowGroup[] {
  const groups: RowGroup[] = [];
  let open: (readonly number[])[] = [];
  let [rows, firstRow] = [0, 0];
  const close = (): void => {
    if (open.length > 0) groups.push({ firstRow, rows, sequences: open });
    firstRow += rows;
    open = [];
    rows = 0;
  };
  for (const sequence of sequences) {
    if (rows + sequence.length > most) close();
    open.push(sequence);
    rows += sequence.length;
  }
  close();
  return groups;
}

/** A pass with its sequences and buffers. */
interface OpenPass {
  readonly group: RowGroup;
  readonly pass: Pass;
  readonly sequences: readonly Sequence[];
  readonly buffers: LayerBuffers;
  readonly states: Float32Array;
}

/** The slot for experts, with those that it knows by number. They serve all waves. */
interface ExpertLoading {
  readonly slots: ExpertSlots;
  readonly registered: RegisteredExperts;
}

/** The passes that go through the model together: as many as memory holds. */
class Wave {
  private constructor(
    private readonly recorder: Recorder,
    readonly passes: readonly OpenPass[],
  ) {}

  /** Takes one pass at least. */
  static open(recorder: Recorder, groups: readonly RowGroup[]): Wave {
    const { device, memoryBytes } = recorder;
    const passes: OpenPass[] = [];
    const wave = new Wave(recorder, passes);
    let bufferBytes = 0;
    let writtenBytes = 0;
    try {
      for (const group of groups) {
        const beforeBytes = device.info().usedBytes;
        const opened = openPass(recorder, group, passes);
        bufferBytes += bytesOfBuffers(opened);
        const newBytes = device.info().usedBytes - beforeBytes;
        writtenBytes += opened.sequences.reduce(
          (sum, sequence, index) => sum + sequence.bytesToWrite(0, group.sequences[index]?.length ?? 0),
          0,
        );
        // The next pass takes as much as this one: new memory, rows of its sequences, buffers.
        const ofOneBytes = newBytes + (writtenBytes + bufferBytes) / passes.length;
        if (device.info().usedBytes + writtenBytes + bufferBytes + ofOneBytes > memoryBytes) break;
      }
      return wave;
    } catch (thrown) {
      wave.close();
      throw thrown;
    }
  }

  get endRow(): number {
    const last = this.passes.at(-1)?.group;
    return last === undefined ? 0 : last.firstRow + last.rows;
  }

  async run(loading: ExpertLoading, onLayer: (layer: number) => void): Promise<void> {
    const { shape } = this.recorder.model;
    for (const { pass, group, sequences } of this.passes) {
      const rowSequence = group.sequences.flatMap((ids, sequence) => ids.map(() => sequence));
      const positions = group.sequences.flatMap((ids) => [...ids.keys()]);
      await pass.begin(
        [...sequences],
        Int32Array.from(rowSequence),
        Int32Array.from(positions),
        Int32Array.from(group.sequences.flat()),
      );
    }
    for (let layer = 0; layer < shape.expertLayers; layer += 1) {
      const choices: RouterChoice[] = [];
      for (const opened of this.passes) choices.push(await this.attend(opened, layer));
      // Nothing that comes after the last router's choice is recorded.
      if (layer < shape.expertLayers - 1) await this.runExperts(loading, layer, choices);
      onLayer(layer + 1);
    }
  }

  close(): void {
    for (const { pass, sequences } of this.passes) {
      pass.dispose();
      for (const sequence of sequences) sequence.dispose();
    }
  }

  private async attend({ pass, group, states, buffers }: OpenPass, layer: number): Promise<RouterChoice> {
    throwIfInterrupted(this.recorder.signal);
    await pass.residual(states);
    const choice = await pass.attend(layer, buffers.hidden);
    await this.recorder.record({ layer, firstRow: group.firstRow, states, choices: choice.experts });
    return choice;
  }

  private async runExperts(
    { slots, registered }: ExpertLoading,
    layer: number,
    choices: readonly RouterChoice[],
  ): Promise<void> {
    const { shape } = this.recorder.model;
    const activated = choices.map(({ experts }) => activatedExperts(experts, shape.expertsPerToken));
    const needed = new Set(activated.flatMap((ofPass) => [...ofPass.keys()]));
    for (const expert of needed) {
      throwIfInterrupted(this.recorder.signal);
      await slots.load(SLOT, registered.numberOf(layer, expert), FROM_STORAGE);
      for (const [index, { buffers }] of this.passes.entries()) {
        const rows: readonly ActivatedRow[] = activated[index]?.get(expert) ?? [];
        await executeRows(slots, SLOT, rows, buffers, shape);
      }
    }
    for (const [index, { pass, buffers }] of this.passes.entries()) {
      await pass.combine(layer, buffers.outputs, choices[index]?.weights ?? new Float32Array());
    }
  }
}

/** Adds the opened pass to `passes`, which are closed together. */
function openPass({ model }: Recorder, group: RowGroup, passes: OpenPass[]): OpenPass {
  const { hiddenSize, expertsPerToken } = model.shape;
  const pass = model.createPass(group.rows);
  const sequences: Sequence[] = [];
  const states = new Float32Array(group.rows * hiddenSize);
  const hidden = new Uint8Array(group.rows * expertRowSize(model.shape) * FLOAT_BYTES);
  const outputs = new Uint8Array(hidden.length * expertsPerToken);
  const opened = { group, pass, sequences, states, buffers: { hidden, outputs } };
  passes.push(opened);
  group.sequences.forEach(() => sequences.push(model.createSequence()));
  return opened;
}

function bytesOfBuffers({ states, buffers: { hidden, outputs } }: OpenPass): number {
  return states.byteLength + hidden.byteLength + outputs.byteLength;
}
