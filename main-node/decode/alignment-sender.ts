import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { SamplingMessage, ShadowRequest, WorkerKept } from '../../shared/wire/messages.js';
import type { Sequence } from '../../native/index.js';
import type { AlignedLayers } from './aligned-layers.js';

/** The parts of a link to a shadow that the sender uses. */
export interface FedShadow {
  readonly id: string;
  readonly alive: boolean;
  readonly backlogBytes: number;
  send(request: ShadowRequest): void;
}

/** The parts of main's cache that the sender uses. */
export type ReadableCache = Pick<Sequence, 'readRows' | 'oldestPosition'>;

export interface AlignmentSenderOptions {
  sequence: number;
  promptTokens: number;
  maxPositions: number;
  layers: AlignedLayers;
  align: {
    tokenPeriod: number;
    keyValuePeriod: number;
    /** True: rows of the answer leave layer by layer; false: when their pass has ended. Rows of the prompt leave layer by layer in any case. */
    streamKeyValues: boolean;
  };
  optimistic: boolean;
  /** Shadow deals experts to all workers. */
  spread: boolean;
  /** The threshold of critical executions; 0: shadow names no critical experts. */
  criticalTheta: number;
  /** The sampling settings, with the seed that main uses. */
  sampling: SamplingMessage;
}

/** Another sequence, and the number of its positions that this sequence begins with. */
export interface FeedPrefix {
  sequence: number;
  positions: number;
}

/** Main's token at a position, and the pass that begins there (proto/odmoe/v1/shadow.proto, AlignToken). */
export interface FedToken {
  position: number;
  tokenId: number;
  rows: number;
  nextRows: number;
  branch: number;
  /** Main runs the pass together with rows of other sequences, and announces experts to the workers itself. */
  joint?: boolean;
}

/** Rows of the cache are sent while the link has fewer unsent bytes than this; the rest waits for the next layer. */
export const ROWS_BACKLOG_BYTES = 8 * 1024 * 1024;
/** Number of times that a sequence is begun at one shadow that keeps dropping it; after that the shadow does not get it again. */
export const MAX_SHADOW_BEGINS = 4;
/** Most bytes in one message of cache rows. */
const ROWS_MESSAGE_BYTES = 1024 * 1024;

/**
 * Keeps shadow's copy of one sequence aligned with main's (OD-MoE section 3.2: token and KV-cache alignment). A shadow that connects later is sent
 * the tokens so far and then all rows so far; of recurrent layers only the latest rows. The sender has no queue: for each layer of the model it
 * remembers up to which position rows are due and sent.
 */
export class AlignmentSender {
  private shadow: FedShadow | null = null;
  /** The shadow at which the sequence was begun last, and how often it was begun there. */
  private lastBegun: { shadow: FedShadow; times: number } | null = null;
  private everFed = false;
  /** Named when the sequence is begun at a shadow for the first time: a shadow that connects later holds nothing of the prefix. */
  private prefix: FeedPrefix | null = null;
  /** Number of prefix positions that shadow was asked about and has not replied to. Until its reply it gets no rows. Null: no reply is open. */
  private askedPositions: number | null = null;
  private readonly due: number[];
  private readonly sent: number[];
  /** Number of positions whose rows main's cache holds in each layer, as of the last pass that wrote there. */
  private readonly written: number[];

  constructor(
    private readonly options: AlignmentSenderOptions,
    private readonly currentShadow: () => FedShadow | null,
    private readonly currentEpoch: () => number,
    /** The current memory: another object after a preemption. Rows that were sent count as sent, since the same rows come again. */
    private readonly cache: () => ReadableCache,
    /** The changes in workers' caches that this shadow has not been sent. */
    private readonly cachedNews: (shadow: FedShadow) => WorkerKept[] = () => [],
  ) {
    this.due = options.layers.layers.map(() => 0);
    this.sent = options.layers.layers.map(() => 0);
    this.written = options.layers.layers.map(() => 0);
  }

  /** Call before followShadow is first called: main need not run these positions, and perhaps shadow need not, either. */
  beginsAs(prefix: FeedPrefix): void {
    this.prefix = prefix;
  }

  /** True if this sequence was begun at a shadow at some time. */
  get tookPart(): boolean {
    return this.everFed;
  }

  /** True if a shadow follows the sequence at present. */
  get fed(): boolean {
    return this.shadow?.alive === true;
  }

  /**
   * Call before a pass. `tokenIds`: prompt and answer so far, which the pass continues after `written` positions. Begins the sequence at a shadow
   * that does not know it or has dropped it. Returns true if it did so.
   */
  followShadow(tokenIds: readonly number[], written: number): boolean {
    const { prefix } = this;
    const { criticalTheta } = this.options;
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
        ...(criticalTheta === 0 ? {} : { criticalTheta }),
        ...(prefix === null ? {} : { prefixSequence: prefix.sequence, prefixPositions: prefix.positions }),
      },
    });
    this.askedPositions = prefix?.positions ?? null;
    this.sent.fill(0);
    this.written.fill(written);
    this.due.fill(this.options.align.keyValuePeriod > 0 ? written : 0);
    return true;
  }

  /** Shadow holds `positions` of the prefix, and gets the rows after them. Returns false if this cannot be: it was not asked about so many. */
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

  /** The shadow has dropped the sequence, which is begun there again before the next pass. */
  dropped(by: FedShadow): void {
    if (by === this.shadow) this.shadow = null;
  }

  token(token: FedToken): void {
    if (this.shadow === null) return;
    const news = this.shadow.alive ? this.cachedNews(this.shadow) : [];
    const kept = news.length === 0 ? {} : { kept: news };
    const { sequence } = this.options;
    this.shadow.send({ kind: 'token', token: { epoch: this.currentEpoch(), sequence, ...token, ...kept } });
  }

  /**
   * A pass has attended at an expert layer: rows up to position `written` of all layers up to there exist. Sends the rows that are due, now or when
   * the pass has ended. All rows of the prompt are due, and those rows of the answer that the alignment period selects. Called when no pass runs on
   * the sequence.
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

  /** The pass has run to its end: the layers after the last expert layer are written, too. */
  allWritten(written: number): void {
    this.layerWritten(this.options.layers.writtenBy.length - 1, written);
  }

  /** Sends the rows that were held back until now, those of the first layer first. */
  passEnded(): void {
    if (this.shadow === null || this.options.align.streamKeyValues) return;
    for (const layer of this.sent.keys()) this.sendDueRows(this.shadow, layer);
  }

  /** Rows from `position` on belonged to drafts that proved wrong: later passes write them anew. */
  rewind(position: number): void {
    for (const layer of this.sent.keys()) {
      this.sent[layer] = Math.min(this.sent[layer] ?? 0, position);
      this.due[layer] = Math.min(this.due[layer] ?? 0, position);
    }
  }

  /** Makes shadow drop the sequence, because its rows there cannot be relied upon. It is begun there again before the next pass. */
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
    // The cache does not hold older rows any more: shadow goes on from the state that its own rows have produced.
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
