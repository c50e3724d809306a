import type { PeerMessage } from '../../../shared/transport/stream-pace.js';
import type { NodeStatus, Placement } from '../../../shared/wire/messages.js';
import type { MessageTap } from '../../network/channel.js';

/** A row of a pass. `sequence`: the number of its creation at the device, from 0. */
export interface TappedRow {
  sequence: number;
  position: number;
  tokenId: number;
}

/** Hears what the passes of a node's models run, and what their routers choose. Passes are numbered as they begin. */
export interface PassTap {
  begun(pass: number, rows: readonly TappedRow[]): void;
  /** `experts`: of each row, by rank. */
  chosen(pass: number, layer: number, experts: readonly number[][]): void;
}

/** What somebody said to somebody, without the bytes of tensors. */
export interface RecordedMessage {
  kind: 'message';
  way: 'sent' | 'arrived';
  from: string;
  to: string;
  message: PeerMessage;
}

/** main's device begins a pass. */
export interface AccountedPass {
  kind: 'pass';
  pass: number;
  rows: readonly TappedRow[];
}

/** main's router has chosen the experts of each row of a pass's layer, by rank. */
export interface RecordedChoice {
  kind: 'choice';
  pass: number;
  layer: number;
  experts: readonly number[][];
}

export type Recorded = RecordedMessage | AccountedPass | RecordedChoice;

const NO_BYTES = new Uint8Array();

/** Writes down, in order, what the nodes say to one another and what main's router chooses: accounts are made of it. */
export class Recorder implements PassTap {
  readonly events: Recorded[] = [];
  /** The latest that main has announced. */
  placement: Placement | null = null;
  /** What each node last told of itself. */
  private readonly latest = new Map<string, NodeStatus>();
  private listens = false;

  constructor(private readonly main: string) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (message.kind === 'placement' && from === this.main) this.placement = message.placement;
    if (message.kind === 'status' && way === 'sent') this.latest.set(from, message.status);
    if (!this.listens || message.kind === 'status') return;
    this.events.push({ kind: 'message', way, from, to, message: withoutTensors(message) });
  };

  begun(pass: number, rows: readonly TappedRow[]): void {
    if (this.listens) this.events.push({ kind: 'pass', pass, rows });
  }

  chosen(pass: number, layer: number, experts: readonly number[][]): void {
    if (this.listens) this.events.push({ kind: 'choice', pass, layer, experts });
  }

  /** What each node last told of itself, by host. */
  get statuses(): ReadonlyMap<string, NodeStatus> {
    return new Map(this.latest);
  }

  /** Begins anew. Returns the placement that holds. */
  begin(): Placement | null {
    this.events.length = 0;
    this.listens = true;
    return this.placement;
  }
}

function withoutTensors(message: PeerMessage): PeerMessage {
  if (message.kind === 'execute') return { ...message, execute: { ...message.execute, hidden: NO_BYTES } };
  if (message.kind === 'cacheRows') return { ...message, cacheRows: { ...message.cacheRows, values: NO_BYTES } };
  if (message.kind !== 'result') return message;
  const experts = message.result.experts.map((expert) => ({ ...expert, output: NO_BYTES }));
  return { ...message, result: { ...message.result, experts } };
}
