import type { ExpertId } from '../../shared/model/expert-id.js';
import {
  type Device,
  type ExpertSlots,
  type RouterChoice,
  type Pass,
  type Sequence,
  wrapHandle,
  wrapperOf,
} from '../../native/index.js';
import type { OperationKind, OperationLog } from './operation-log.js';

/** The node whose device is recorded. */
export interface RecordedNode {
  readonly node: string;
  readonly nowMs: () => number;
  readonly log: OperationLog;
  /** Called when a pass begins, and when its logits are there. */
  readonly onPass?: (pass: TimedPass, what: 'begins' | 'ends') => void;
  /** The position for which the expert was last announced to the node; -1: it was not announced. */
  readonly positionOf?: (layer: number, expert: number) => number;
}

/** A pass, with the data from its begin. */
export interface TimedPass {
  position: number;
  rows: number;
  tokenId: number;
}

/**
 * Records the operations of a device. Operations of the device's processor run one after the other, and so do loads on its link: if one waits
 * for another, its recorded begin is the other one's end.
 */
export function recordingDevice(device: Device, recorded: RecordedNode): Device {
  const lanes = new Lanes(recorded);
  return wrapHandle(device, {
    createModel: (shape) => {
      const model = device.createModel(shape);
      return wrapHandle(model, { createPass: (...args) => new RecordingPass(model.createPass(...args), lanes) });
    },
    createExpertSlots: (...args) => recordingSlots(device.createExpertSlots(...args), lanes),
  });
}

/** The recorded description of an operation. */
interface OperationDescription {
  kind: OperationKind;
  label: string;
  position: number;
  layer: number;
}

/** The processor and the link of one device. */
class Lanes {
  private readonly freeMs = { processor: 0, link: 0 };

  constructor(readonly recorded: RecordedNode) {}

  get nowMs(): number {
    return this.recorded.nowMs();
  }

  /** The operation that was requested at askedMs has ended or was cancelled. */
  ended(
    lane: 'processor' | 'link',
    askedMs: number,
    operation: OperationDescription,
    givenUp = false,
    toMs = this.nowMs,
  ): void {
    const { node, log } = this.recorded;
    log.add({ ...operation, node, givenUp, fromMs: Math.max(askedMs, this.freeMs[lane]), toMs });
    this.freeMs[lane] = Math.max(this.freeMs[lane], toMs);
  }
}

class RecordingPass extends wrapperOf<Pass>() {
  private begun: TimedPass = { position: 0, rows: 0, tokenId: 0 };
  // Left out, because they would not be recorded.
  override readonly attendHere = undefined;
  override readonly combineHere = undefined;

  constructor(
    private readonly pass: Pass,
    private readonly lanes: Lanes,
  ) {
    super(pass);
  }

  override begin(
    sequences: Sequence[],
    rowSequence: Int32Array,
    positions: Int32Array,
    tokenIds: Int32Array,
    states?: Float32Array,
  ): Promise<void> {
    this.begun = { position: positions[0] ?? 0, rows: positions.length, tokenId: tokenIds[0] ?? 0 };
    this.lanes.recorded.onPass?.(this.begun, 'begins');
    return this.pass.begin(sequences, rowSequence, positions, tokenIds, states);
  }

  override async attend(layer: number, hidden: Uint8Array): Promise<RouterChoice> {
    const askedMs = this.lanes.nowMs;
    const choice = await this.pass.attend(layer, hidden);
    this.lanes.ended('processor', askedMs, this.describe('M', layer));
    return choice;
  }

  override async chooseAhead(layer: number): Promise<RouterChoice> {
    const askedMs = this.lanes.nowMs;
    const choice = await this.pass.chooseAhead(layer);
    this.lanes.ended('processor', askedMs, this.describe('M', layer));
    return choice;
  }

  /** A layer lasts until the attention of the next one begins; all attention takes as long as that of the first layer. */
  override async forward(onRouter: ((layer: number, choice: RouterChoice) => void) | null): Promise<void> {
    const { lanes } = this;
    const askedMs = lanes.nowMs;
    let attentionMs = 0;
    let layers = 0;
    const finish = (givenUp: boolean): void => {
      lanes.ended('processor', askedMs, this.describe('S', onRouter === null ? -1 : layers - 1), givenUp);
    };
    const gated = (layer: number, choice: RouterChoice): void => {
      if (layer === 0) attentionMs = lanes.nowMs - askedMs;
      else lanes.ended('processor', askedMs, this.describe('S', layer - 1), false, lanes.nowMs - attentionMs);
      layers = layer + 1;
      onRouter?.(layer, choice);
    };
    try {
      await this.pass.forward(onRouter === null ? null : gated);
    } catch (thrown) {
      finish(true);
      throw thrown;
    }
    finish(false);
  }

  override async logits(rows: Int32Array): Promise<Float32Array> {
    const askedMs = this.lanes.nowMs;
    const logits = await this.pass.logits(rows);
    this.lanes.ended('processor', askedMs, this.describe('head', -1));
    this.lanes.recorded.onPass?.(this.begun, 'ends');
    return logits;
  }

  private describe(kind: OperationKind, layer: number): OperationDescription {
    const { position, rows } = this.begun;
    const of = rows === 1 ? `position ${position}` : `${rows} positions from ${position}`;
    const name = kind === 'head' ? 'LM head' : kind;
    return { kind, position, layer, label: `${name}${layer < 0 ? '' : ` layer ${layer + 1}`}, ${of}` };
  }
}

/** The place of an expert whose registration did not name it. */
const UNKNOWN_PLACE: ExpertId = { layer: -1, expert: -1 };

function recordingSlots(slots: ExpertSlots, lanes: Lanes): ExpertSlots {
  /** Places of experts by number, and contents of slots. */
  const places = new Map<number, ExpertId>();
  const contents = new Map<number, ExpertId>();
  const describe = (kind: OperationKind, slot: number): OperationDescription => {
    const { layer, expert } = contents.get(slot) ?? UNKNOWN_PLACE;
    const position = lanes.recorded.positionOf?.(layer, expert) ?? -1;
    const of = position < 0 ? '' : `, position ${position}`;
    return { kind, position, layer, label: `${kind} layer ${layer + 1}, expert ${expert}${of}` };
  };
  return wrapHandle(slots, {
    register: (source, place = UNKNOWN_PLACE) => {
      const expert = slots.register(source, place);
      places.set(expert, place);
      return expert;
    },
    load: async (slot, expert, request) => {
      contents.set(slot, places.get(expert) ?? UNKNOWN_PLACE);
      const [askedMs, what] = [lanes.nowMs, describe('EL', slot)];
      const outcome = await slots.load(slot, expert, request);
      lanes.ended('link', askedMs, what, !outcome.loaded);
      return outcome;
    },
    execute: async (slot, rows, hidden, output, readings) => {
      const [askedMs, what] = [lanes.nowMs, describe('EC', slot)];
      const outcome = await slots.execute(slot, rows, hidden, output, readings);
      lanes.ended('processor', askedMs, what);
      return outcome;
    },
    // Left out, because it would not be recorded.
    executeHere: undefined,
  });
}
