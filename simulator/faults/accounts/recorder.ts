import type { PeerMessage } from '../../../shared/transport/stream-pace.js';
import type { NodeStatus, Placement } from '../../../shared/wire/messages.js';
import type { MessageTap } from '../../network/channel.js';

/** A row of a pass. `sequence`: number of its creation at the device, from 0. */
export interface TappedRow {
  sequence: number;
  position: number;
  tokenId: number;
}

/** Receives the rows that a node's models run in passes, and the choices of their routers. Passes are numbered in the order in which they begin. */
export interface PassTap {
  begun(pass: number, rows: readonly TappedRow[]): void;
  /** `experts`: the experts of each row, by rank. */
  chosen(pass: number, layer: number, experts: readonly number[][]): void;
}

/** A message between two nodes, without the bytes of tensors. */
export interface RecordedMessage {
  kind: 'message';
  way: 'sent' | 'arrived';
  from: string;
  to: string;
  message: PeerMessage;
}

/** Main's device begins a pass. */
export interface AccountedPass {
  kind: 'pass';
  pass: number;
  rows: readonly TappedRow[];
}

/** Main's router has chosen the experts of each row in a layer of a pass, by rank. */
export interface RecordedChoice {
  kind: 'choice';
  pass: number;
  layer: number;
  experts: readonly number[][];
}

export type Recorded = RecordedMessage | AccountedPass | RecordedChoice;

const NO_BYTES = new Uint8Array();

/** Records in order the messages between nodes and the choices of main's router; accounts are made from the record. */
export class Recorder implements PassTap {
  readonly events: Recorded[] = [];
  /** The latest placement that main has published. */
  placement: Placement | null = null;
  /** The latest status of each node. */
  private readonly latest = new Map<string, NodeStatus>();
  /** Workers that have sent results since their latest status. */
  private readonly behind = new Set<string>();
  private listens = false;

  constructor(private readonly main: string) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (message.kind === 'placement' && from === this.main) this.placement = message.placement;
    if (message.kind === 'status' && way === 'sent') {
      this.latest.set(from, message.status);
      this.behind.delete(from);
    }
    if (message.kind === 'result' && way === 'sent') this.behind.add(from);
    if (!this.listens || message.kind === 'status') return;
    this.events.push({ kind: 'message', way, from, to, message: withoutTensors(message) });
  };

  begun(pass: number, rows: readonly TappedRow[]): void {
    if (this.listens) this.events.push({ kind: 'pass', pass, rows });
  }

  chosen(pass: number, layer: number, experts: readonly number[][]): void {
    if (this.listens) this.events.push({ kind: 'choice', pass, layer, experts });
  }

  /** The latest status of each node, by host. */
  get statuses(): ReadonlyMap<string, NodeStatus> {
    return new Map(this.latest);
  }

  /** The latest status of each worker tells of all its results. Workers that the placement leaves out do not count. */
  get areStatusesCurrent(): boolean {
    return this.placement?.workers.some(({ id }) => this.behind.has(id)) !== true;
  }

  /** Starts a new record. Returns the placement that is valid now. */
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
