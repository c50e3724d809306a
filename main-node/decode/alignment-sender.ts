import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { SamplingMessage, ShadowRequest, WorkerKept } from '../../shared/wire/messages.js';
import type { Sequence } from '../../native/index.js';
import type { AlignedLayers } from './aligned-layers.js';

/** What the feed needs of a link to a shadow. */
export interface FedShadow {
  readonly id: string;
  readonly alive: boolean;
  readonly backlogBytes: number;
  send(request: ShadowRequest): void;
}

/** What the feed needs of main's cache. */
export type ReadableCache = Pick<Sequence, 'readRows' | 'oldestPosition'>;

export interface AlignmentSenderOptions {
  sequence: number;
  promptTokens: number;
  maxPositions: number;
  layers: AlignedLayers;
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

/** A sequence begins with so many positions of another one. */
export interface FeedPrefix {
  sequence: number;
  positions: number;
}

/** main's token at a position, and the pass that begins there (proto/odmoe/v1/shadow.proto, AlignToken). */
export interface FedToken {
  position: number;
  tokenId: number;
  rows: number;
  nextRows: number;
  branch: number;
  /** Main runs it together with rows of other sequences, and tells the workers itself. */
  joint?: boolean;
}

/** Rows of the cache go out while less than this is unsent; the rest waits for the next layer. */
export const ROWS_BACKLOG_BYTES = 8 * 1024 * 1024;
/** A shadow that keeps dropping a sequence is told of it so often, and then left without it. */
export const MAX_SHADOW_BEGINS = 4;
/** Largest message of rows of the cache. */
const ROWS_MESSAGE_BYTES = 1024 * 1024;

/**
 * Keeps shadow's copy of one sequence aligned with main's (OD-MoE section 3.2: token and KV-cache alignment). A shadow that
 * comes in the middle is told the tokens so far and then gets all rows so far, of recurrent layers the latest. Holds no queue
 * of its own: per layer of the model it remembers up to which position rows are due and sent.
 */
export class AlignmentSender {
  private shadow: FedShadow | null = null;
  /** The one that was told of the sequence last, and how often. */
  private lastBegun: { shadow: FedShadow; times: number } | null = null;
  private everFed = false;
  /** To be named where the sequence is told of for the first time: a shadow that comes later has nothing of it. */
  private prefix: FeedPrefix | null = null;
  /** Shadow is yet to say how much of so many positions it has. Until then it gets no rows. */
  private askedPositions: number | null = null;
  private readonly due: number[];
  private readonly sent: number[];
  /** As far as main's cache has rows, where a pass has last written them. */
  private readonly written: number[];

  constructor(
    private readonly options: AlignmentSenderOptions,
    private readonly currentShadow: () => FedShadow | null,
    private readonly currentEpoch: () => number,
    /** Another one once the sequence has given its memory back; what was sent of its rows stays sent: they are the same ones again. */
    private readonly cache: () => ReadableCache,
    /** What workers keep, as far as the shadow has not been told. */
    private readonly keptNews: (shadow: FedShadow) => WorkerKept[] = () => [],
  ) {
    this.due = options.layers.layers.map(() => 0);
    this.sent = options.layers.layers.map(() => 0);
    this.written = options.layers.layers.map(() => 0);
  }

  /** Before followShadow is first called: main need not run so many positions, and perhaps neither need shadow. */
  beginsAs(prefix: FeedPrefix): void {
    this.prefix = prefix;
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
    const { prefix } = this;
    this.prefix = null;
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
        ...(prefix === null ? {} : { prefixSequence: prefix.sequence, prefixPositions: prefix.positions }),
      },
    });
    this.askedPositions = prefix?.positions ?? null;
    this.sent.fill(0);
    this.written.fill(written);
    this.due.fill(this.options.align.keyValuePeriod > 0 ? written : 0);
    return true;
  }

  /** Shadow has so many positions of the prefix: it gets the rows behind them. False: it cannot, it was not asked about so many. */
  prefixKept(positions: number, by: FedShadow): boolean {
    if (by !== this.shadow || this.askedPositions === null) return true;
    if (positions > this.askedPositions) return false;
    this.askedPositions = null;
    this.sent.fill(positions);
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
    if (this.shadow === null) return;
    const kept = this.shadow.alive ? this.keptNews(this.shadow) : [];
    const news = kept.length === 0 ? {} : { kept };
    const { sequence } = this.options;
    this.shadow.send({ kind: 'token', token: { epoch: this.currentEpoch(), sequence, ...token, ...news } });
  }

  /**
   * A pass has attended at an expert layer: rows up to position `written` of all layers up to there exist. Those that are due are sent, now or when the pass has ended: all of the prompt's,
   * and of the answer's at iterations that the period names. Called when no pass runs on the sequence.
   */
  layerWritten(expertLayer: number, written: number): void {
    const { align, promptTokens, layers } = this.options;
    const period = align.keyValuePeriod;
    if (this.shadow === null || period === 0) return;
    const iterations = written - promptTokens;
    const due = iterations <= 0 ? written : written - (iterations % period);
    for (const layer of layers.writtenBy[expertLayer] ?? []) {
      this.written[layer] = written;
      this.due[layer] = Math.max(this.due[layer] ?? 0, due);
      if (align.streamKeyValues || iterations <= 0) this.sendDueRows(this.shadow, layer);
    }
  }

  /** The pass has come to its end: also the layers behind the last expert layer are written. */
  allWritten(written: number): void {
    this.layerWritten(this.options.layers.writtenBy.length - 1, written);
  }

  /** Rows that were held back until now leave, the first layer's first. */
  passEnded(): void {
    if (this.shadow === null || this.options.align.streamKeyValues) return;
    for (const layer of this.sent.keys()) this.sendDueRows(this.shadow, layer);
  }

  /** What was written from `position` on was of drafts that proved wrong: later passes write it anew. */
  rewind(position: number): void {
    for (const layer of this.sent.keys()) {
      this.sent[layer] = Math.min(this.sent[layer] ?? 0, position);
      this.due[layer] = Math.min(this.due[layer] ?? 0, position);
    }
  }

  /** What shadow has of the sequence is not to be relied upon: it drops it, and is told of it again before the next pass. */
  forget(): void {
    this.end();
    this.prefix = null;
  }

  end(): void {
    this.shadow?.send({ kind: 'end', end: { sequence: this.options.sequence } });
    this.shadow = null;
  }

  private sendDueRows(shadow: FedShadow, layer: number): void {
    if (this.askedPositions !== null) return;
    const { sequence, layers } = this.options;
    const { rowBytes, recurrent } = requirePresent(layers.layers[layer], 'rows are of a layer of the model.');
    const rowsPerMessage = Math.max(1, Math.floor(ROWS_MESSAGE_BYTES / rowBytes));
    const due = Math.min(this.due[layer] ?? 0, this.written[layer] ?? 0);
    const sent = this.sent[layer] ?? 0;
    if (sent >= due) return;
    const cache = this.cache();
    let position = sent;
    // Older ones are in nobody's cache any more: shadow goes on from the state that its own rows have given it.
    if (recurrent) position = Math.max(position, Math.min(due, cache.oldestPosition));
    while (position < due && shadow.alive && shadow.backlogBytes < ROWS_BACKLOG_BYTES) {
      const rows = Math.min(rowsPerMessage, due - position);
      const values = cache.readRows(layer, position, rows);
      const cacheRows = { epoch: this.currentEpoch(), sequence, layer, position, rows, values };
      shadow.send({ kind: 'cacheRows', cacheRows });
      position += rows;
    }
    this.sent[layer] = position;
  }
}
