import type { ShadowRequest } from '../../shared/rpc/messages.js';
import type { SamplingMessage } from '../../shared/sampling/sampling-options.js';

/** What the feed needs of a link to a shadow. */
export interface FedShadow {
  readonly id: string;
  readonly alive: boolean;
  readonly backlogBytes: number;
  send(request: ShadowRequest): void;
}

/** Reads key and value rows of one layer; the positions have been written. */
export type ReadKeyValues = (layer: number, position: number, rows: number) => { keys: Uint8Array; values: Uint8Array };

export interface ShadowFeedOptions {
  sequence: number;
  promptTokens: number;
  maxPositions: number;
  layers: number;
  /** Bytes of the keys of one position in one layer. */
  keyRowBytes: number;
  align: {
    tokenPeriod: number;
    keyValuePeriod: number;
    /** Rows of the answer leave layer by layer; false: when their pass has ended. The prompt's leave layer by layer in any case. */
    streamKeyValues: boolean;
  };
  optimistic: boolean;
  /** Shadow deals experts to all workers. */
  spread: boolean;
  /** With the seed that main uses. */
  sampling: SamplingMessage;
}

/** main's token at a position, and the pass that begins there (proto/odmoe/v1/shadow.proto, AlignToken). */
export interface FedToken {
  position: number;
  tokenId: number;
  rows: number;
  nextRows: number;
  branch: number;
}

/** Key and value rows go out while less than this is unsent; the rest waits for the next layer. */
export const KEY_VALUE_BACKLOG_BYTES = 8 * 1024 * 1024;
/** A shadow that keeps dropping a sequence is told of it so often, and then left without it. */
export const MAX_SHADOW_BEGINS = 4;
/** Largest message of key and value rows. */
const KEY_VALUE_MESSAGE_BYTES = 1024 * 1024;

/**
 * Keeps shadow's copy of one sequence aligned with main's (OD-MoE section 3.2: token and KV-cache alignment). A shadow that
 * comes in the middle is told the tokens so far and then gets all key and value rows so far. Holds no queue of its own: per
 * layer it remembers up to which position rows are due and sent.
 */
export class ShadowFeed {
  private shadow: FedShadow | null = null;
  /** The one that was told of the sequence last, and how often. */
  private lastBegun: { shadow: FedShadow; times: number } | null = null;
  private everFed = false;
  private readonly due: number[];
  private readonly sent: number[];

  constructor(
    private readonly options: ShadowFeedOptions,
    private readonly currentShadow: () => FedShadow | null,
    private readonly currentEpoch: () => number,
    private readonly readKeyValues: ReadKeyValues,
  ) {
    this.due = new Array<number>(options.layers).fill(0);
    this.sent = new Array<number>(options.layers).fill(0);
  }

  /** A shadow has been told of this sequence at some time. */
  get tookPart(): boolean {
    return this.everFed;
  }

  /** A shadow follows the sequence now. */
  get fed(): boolean {
    return this.shadow?.alive === true;
  }

  /**
   * Before a pass. `tokenIds`: prompt and answer so far, which the pass after `written` positions continues; a shadow that does not
   * know the sequence, or has dropped it, is told of it. True: that was so.
   */
  followShadow(tokenIds: readonly number[], written: number): boolean {
    const shadow = this.currentShadow();
    if (shadow === null || !shadow.alive) {
      this.shadow = null;
      return false;
    }
    if (shadow === this.shadow) return false;
    const times = this.lastBegun?.shadow === shadow ? this.lastBegun.times : 0;
    if (times >= MAX_SHADOW_BEGINS) return false;
    this.lastBegun = { shadow, times: times + 1 };
    this.shadow = shadow;
    this.everFed = true;
    shadow.send({
      kind: 'begin',
      begin: {
        epoch: this.currentEpoch(),
        sequence: this.options.sequence,
        tokenIds: [...tokenIds],
        alignTokenPeriod: this.options.align.tokenPeriod,
        alignKvPeriod: this.options.align.keyValuePeriod,
        promptTokens: this.options.promptTokens,
        maxPositions: this.options.maxPositions,
        optimistic: this.options.optimistic,
        spread: this.options.spread,
        sampling: this.options.sampling,
      },
    });
    this.sent.fill(0);
    this.due.fill(this.options.align.keyValuePeriod > 0 ? written : 0);
    return true;
  }

  isFedBy(shadow: FedShadow): boolean {
    return shadow === this.shadow;
  }

  /** That shadow has dropped the sequence: it is told of it again before the next pass. */
  dropped(by: FedShadow): void {
    if (by === this.shadow) this.shadow = null;
  }

  token(token: FedToken): void {
    const { sequence } = this.options;
    this.shadow?.send({ kind: 'token', token: { epoch: this.currentEpoch(), sequence, ...token } });
  }

  /**
   * The layer's rows up to position `written` exist. Those that are due are sent, now or when the pass has ended: all of the prompt's,
   * and of the answer's at iterations that the period names. Called when no pass runs on the sequence.
   */
  layerWritten(layer: number, written: number): void {
    const { align, promptTokens } = this.options;
    const period = align.keyValuePeriod;
    if (this.shadow === null || period === 0) return;
    const iterations = written - promptTokens;
    const due = iterations <= 0 ? written : written - (iterations % period);
    this.due[layer] = Math.max(this.due[layer] ?? 0, due);
    if (align.streamKeyValues || iterations <= 0) this.sendDueRows(this.shadow, layer);
  }

  /** Rows that were held back until now leave, the first layer's first. */
  passEnded(): void {
    if (this.shadow === null || this.options.align.streamKeyValues) return;
    for (let layer = 0; layer < this.options.layers; layer++) this.sendDueRows(this.shadow, layer);
  }

  /** What was written from `position` on was of drafts that proved wrong: later passes write it anew. */
  rewind(position: number): void {
    for (let layer = 0; layer < this.options.layers; layer++) {
      this.sent[layer] = Math.min(this.sent[layer] ?? 0, position);
      this.due[layer] = Math.min(this.due[layer] ?? 0, position);
    }
  }

  end(): void {
    this.shadow?.send({ kind: 'end', end: { sequence: this.options.sequence } });
    this.shadow = null;
  }

  private sendDueRows(shadow: FedShadow, layer: number): void {
    const rowsPerMessage = Math.max(1, Math.floor(KEY_VALUE_MESSAGE_BYTES / (2 * this.options.keyRowBytes)));
    const due = this.due[layer] ?? 0;
    let position = this.sent[layer] ?? 0;
    while (position < due && shadow.alive && shadow.backlogBytes < KEY_VALUE_BACKLOG_BYTES) {
      const rows = Math.min(rowsPerMessage, due - position);
      const { keys, values } = this.readKeyValues(layer, position, rows);
      const { sequence } = this.options;
      shadow.send({
        kind: 'kvRows',
        kvRows: { epoch: this.currentEpoch(), sequence, layer, position, rows, keys, values },
      });
      position += rows;
    }
    this.sent[layer] = position;
  }
}
