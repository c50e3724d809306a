import assert from 'node:assert/strict';
import { ShadowLink } from '../../main-node/cluster/shadow-link.js';
import type { AlignedLayers } from '../../main-node/decode/aligned-layers.js';
import { PredictionPost } from '../../main-node/decode/prediction-post.js';
import { AnnouncedPasses } from '../../main-node/pass/announcements.js';
import {
  ROWS_BACKLOG_BYTES,
  MAX_SHADOW_BEGINS,
  AlignmentSender,
  type FedShadow,
  type FedToken,
  type ReadableCache,
} from '../../main-node/decode/alignment-sender.js';
import type { NodeIdentity, PrefixKept, ShadowReply, ShadowRequest, WorkerKept } from '../../shared/wire/messages.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { plainIdentity } from './plain-identity.js';

const LAYERS = 2;
const ROW_BYTES = 4;
const PLAIN_LAYERS: AlignedLayers = {
  layers: [0, 1].map(() => ({ rowBytes: ROW_BYTES, recurrent: false })),
  writtenBy: [[0], [1], []],
};
const PROMPT = [5, 6, 7];
const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const IDENTITY: NodeIdentity = plainIdentity({ id: 's', role: 'ROLE_SHADOW', address: '' });

const SAMPLING = { temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1.1, seed: 77 };
const NO_DRAFTS = { arrive: () => undefined, restart: () => undefined, shadowLost: () => undefined };

const tokenAt = (position: number, tokenId: number): FedToken => ({
  position,
  tokenId,
  rows: 1,
  nextRows: 1,
  branch: 0,
});

class RecordingShadow implements FedShadow {
  readonly sent: ShadowRequest[] = [];
  alive = true;
  backlogBytes = 0;

  constructor(readonly id: string) {}

  send(request: ShadowRequest): void {
    this.sent.push(request);
  }

  /** "layer:from-to" of the rows that were sent. */
  rows(): string[] {
    return this.sent.flatMap((request) => {
      if (request.kind !== 'cacheRows') return [];
      const { layer, position, rows, values } = request.cacheRows;
      assert.equal(values.byteLength, rows * ROW_BYTES);
      return [`${layer}:${position}-${position + rows}`];
    });
  }
}

function feedFor(
  shadow: { current: FedShadow | null },
  tokenPeriod: number,
  keyValuePeriod: number,
  streamKeyValues = true,
  layers: AlignedLayers = PLAIN_LAYERS,
  cache: Partial<ReadableCache> = {},
  keptNews: () => WorkerKept[] = () => [],
  criticalTheta = 0,
): AlignmentSender {
  return new AlignmentSender(
    {
      sequence: 9,
      promptTokens: PROMPT.length,
      maxPositions: 20,
      layers,
      align: { tokenPeriod, keyValuePeriod, streamKeyValues },
      optimistic: true,
      spread: false,
      criticalTheta,
      sampling: SAMPLING,
    },
    () => shadow.current,
    () => 3,
    () => ({ oldestPosition: 0, readRows: (_layer, _position, count) => new Uint8Array(count * ROW_BYTES), ...cache }),
    keptNews,
  );
}

function passOver(feed: AlignmentSender, written: number): void {
  for (let layer = 0; layer < LAYERS; layer++) feed.layerWritten(layer, written);
  feed.allWritten(written);
}

describe('main: the shadow feed', () => {
  it('begins with the prompt, then sends its rows and every token', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 1, 1);
    feed.followShadow(PROMPT, 0);
    passOver(feed, 3);
    feed.followShadow(PROMPT, 3);
    feed.token(tokenAt(3, 40));
    passOver(feed, 4);
    feed.end();
    assert.deepEqual(
      shadow.sent.map(({ kind }) => kind),
      ['begin', 'cacheRows', 'cacheRows', 'token', 'cacheRows', 'cacheRows', 'end'],
    );
    assert.deepEqual(shadow.rows(), ['0:0-3', '1:0-3', '0:3-4', '1:3-4']);
    const begin = shadow.sent[0];
    assert.ok(begin?.kind === 'begin');
    assert.deepEqual(begin.begin.tokenIds, PROMPT);
    assert.equal(begin.begin.promptTokens, 3);
    assert.deepEqual([begin.begin.optimistic, begin.begin.spread, begin.begin.sampling], [true, false, SAMPLING]);
  });

  it('sends the cached experts of workers with a token, once', () => {
    const shadow = new RecordingShadow('s');
    const kept = { worker: 1, layer: 2, experts: [0, 7] };
    const news = [[kept], [], [kept]];
    const feed = feedFor({ current: shadow }, 1, 1, true, PLAIN_LAYERS, {}, () => news.shift() ?? []);
    feed.followShadow(PROMPT, 0);
    for (const position of [3, 4, 5]) feed.token(tokenAt(position, 40));
    const tokens = shadow.sent.flatMap((request) => (request.kind === 'token' ? [request.token.kept] : []));
    assert.deepEqual(tokens, [[kept], undefined, [kept]]);
    assert.deepEqual(news, []);
  });

  it('sends the rows of several iterations together at the set period', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 4, 2);
    feed.followShadow(PROMPT, 0);
    for (let written = 3; written <= 7; written++) passOver(feed, written);
    assert.deepEqual(
      shadow.rows().filter((rows) => rows.startsWith('1:')),
      ['1:0-3', '1:3-5', '1:5-7'],
    );
  });

  it('sends the rows of passes of several positions at the same periods', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 1, 2);
    feed.followShadow(PROMPT, 0);
    for (const written of [3, 6, 8, 11]) passOver(feed, written);
    assert.deepEqual(
      shadow.rows().filter((rows) => rows.startsWith('1:')),
      ['1:0-3', '1:3-5', '1:5-7', '1:7-11'],
    );
  });

  it('sends the rows of drafts that proved wrong once more', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 1, 1);
    feed.followShadow(PROMPT, 0);
    passOver(feed, 3);
    passOver(feed, 7);
    feed.rewind(5);
    passOver(feed, 6);
    passOver(feed, 9);
    assert.deepEqual(
      shadow.rows().filter((rows) => rows.startsWith('1:')),
      ['1:0-3', '1:3-7', '1:5-6', '1:6-9'],
    );
  });

  it('sends the rows of an iteration at its end without streaming, those of the prompt at once', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 1, 1, false);
    feed.followShadow(PROMPT, 0);
    passOver(feed, 3);
    assert.deepEqual(shadow.rows(), ['0:0-3', '1:0-3']);
    passOver(feed, 5);
    assert.equal(shadow.rows().length, 2);
    feed.passEnded();
    assert.deepEqual(shadow.rows().slice(2), ['0:3-5', '1:3-5']);
  });

  it('sends no rows without key-value alignment', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 0, 0);
    feed.followShadow(PROMPT, 0);
    passOver(feed, 3);
    assert.deepEqual(shadow.rows(), []);
  });

  it('sends the whole past to a shadow that joins in the middle', () => {
    const shadow: { current: RecordingShadow | null } = { current: null };
    const feed = feedFor(shadow, 1, 1);
    feed.followShadow(PROMPT, 0);
    passOver(feed, 3);
    feed.token(tokenAt(3, 40));
    assert.equal(feed.tookPart, false);
    shadow.current = new RecordingShadow('late');
    const soFar = [...PROMPT, 40];
    feed.followShadow(soFar, 4);
    feed.token(tokenAt(4, 41));
    passOver(feed, 5);
    const begin = shadow.current.sent[0];
    assert.ok(begin?.kind === 'begin');
    assert.deepEqual(begin.begin.tokenIds, soFar);
    assert.deepEqual(shadow.current.rows(), ['0:0-5', '1:0-5']);
    assert.equal(feed.tookPart, true);
  });

  it('sends the rows of a recurrent layer that still exist', () => {
    const shadow: { current: RecordingShadow | null } = { current: null };
    const layers = { ...PLAIN_LAYERS, layers: [false, true].map((recurrent) => ({ rowBytes: ROW_BYTES, recurrent })) };
    const feed = feedFor(shadow, 1, 1, true, layers, { oldestPosition: 4 });
    feed.followShadow(PROMPT, 0);
    shadow.current = new RecordingShadow('late');
    feed.followShadow([...PROMPT, 40, 41, 42], 6);
    passOver(feed, 7);
    assert.deepEqual(shadow.current.rows(), ['0:0-7', '1:4-7']);
    feed.rewind(3);
    passOver(feed, 4);
    assert.deepEqual(shadow.current.rows().slice(2), ['0:3-4'], 'none is older than the oldest');
  });

  it('sends rows of layers without experts with the next expert layer, and the last ones at the end', () => {
    const shadow = new RecordingShadow('s');
    const layers = {
      layers: [0, 1, 2, 3].map(() => ({ rowBytes: ROW_BYTES, recurrent: false })),
      writtenBy: [[0, 1], [2], [3]],
    };
    const feed = feedFor({ current: shadow }, 1, 1, true, layers);
    feed.followShadow(PROMPT, 0);
    feed.layerWritten(0, 3);
    assert.deepEqual(shadow.rows(), ['0:0-3', '1:0-3']);
    feed.layerWritten(1, 3);
    assert.deepEqual(shadow.rows().slice(2), ['2:0-3']);
    feed.allWritten(3);
    assert.deepEqual(shadow.rows().slice(3), ['3:0-3']);
  });

  it('names the prefix of another sequence, and sends the rows that shadow lacks', () => {
    const shadow = new RecordingShadow('s');
    const current = { current: shadow };
    const feed = feedFor(current, 1, 1);
    feed.beginsAs({ sequence: 4, positions: 2 });
    feed.followShadow(PROMPT, 2);
    const begin = shadow.sent[0];
    assert.ok(begin?.kind === 'begin');
    assert.deepEqual([begin.begin.prefixSequence, begin.begin.prefixPositions], [4, 2]);
    passOver(feed, 3);
    assert.deepEqual(shadow.rows(), [], 'nobody knows yet which');
    assert.equal(feed.prefixKept(1, new RecordingShadow('another')), true);
    assert.equal(feed.prefixKept(3, shadow), false, 'it was not asked about so many');
    assert.equal(feed.prefixKept(1, shadow), true);
    assert.equal(feed.prefixKept(0, shadow), true, 'said twice');
    passOver(feed, 4);
    assert.deepEqual(shadow.rows(), ['0:1-4', '1:1-4']);
    current.current = new RecordingShadow('next');
    feed.followShadow([...PROMPT, 40], 4);
    const again = current.current.sent[0];
    assert.ok(again?.kind === 'begin');
    assert.equal(again.begin.prefixPositions, undefined);
    passOver(feed, 5);
    assert.deepEqual(current.current.rows(), ['0:0-5', '1:0-5'], 'one that comes later has nothing of it');
  });

  it('names no prefix to a shadow that joins when the sequence has begun', () => {
    const shadow: { current: RecordingShadow | null } = { current: null };
    const feed = feedFor(shadow, 1, 1);
    feed.beginsAs({ sequence: 4, positions: 2 });
    feed.followShadow(PROMPT, 2);
    shadow.current = new RecordingShadow('late');
    feed.followShadow(PROMPT, 3);
    passOver(feed, 4);
    assert.deepEqual(shadow.current.rows(), ['0:0-4', '1:0-4']);
  });

  it('repeats no rows that main computes again, and sends no row too early', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 1, 1);
    feed.followShadow(PROMPT, 0);
    passOver(feed, 3);
    shadow.backlogBytes = ROWS_BACKLOG_BYTES;
    passOver(feed, 6);
    shadow.backlogBytes = 0;
    passOver(feed, 2);
    passOver(feed, 5);
    assert.deepEqual(shadow.rows(), ['0:0-3', '1:0-3', '0:3-5', '1:3-5']);
    passOver(feed, 7);
    assert.deepEqual(shadow.rows().slice(4), ['0:5-7', '1:5-7']);
  });

  it('drops or ignores a shadow that claims more of a prefix than the question named', () => {
    const stream = new MemoryStream<ShadowRequest, ShadowReply>();
    const post = new PredictionPost(
      { placement: null, worker: () => null, endSequence: () => undefined },
      new AnnouncedPasses(),
    );
    const nothing = () => undefined;
    const shape = { expertLayers: LAYERS, experts: 8, vocabSize: 300 };
    const listener = {
      onPrediction: nothing,
      onRestart: nothing,
      onDraft: nothing,
      onSequenceDropped: nothing,
      onLost: nothing,
      onDrained: nothing,
      onPrefixKept: (kept: PrefixKept, by: ShadowLink) => post.prefixKept(kept, by),
    };
    const link = new ShadowLink(IDENTITY, 's:1', stream, shape, listener, SILENT);
    const feed = feedFor({ current: link }, 1, 1);
    post.open(9, { predictions: { arrive: () => 'ignored', restart: nothing }, feed, drafts: NO_DRAFTS });
    const say = (sequence: number, positions: number) =>
      link.receive({ kind: 'prefixKept', prefixKept: { sequence, positions } });
    say(9, 1_000_000);
    say(8, 2);
    assert.equal(link.alive, true);
    feed.beginsAs({ sequence: 4, positions: 2 });
    feed.followShadow(PROMPT, 2);
    say(9, 3);
    assert.equal(stream.closedWith?.code, 'PROTOCOL_VIOLATION');
  });

  it('holds rows back while too much is unsent, and sends them when there is room', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 1, 1);
    feed.followShadow(PROMPT, 0);
    shadow.backlogBytes = ROWS_BACKLOG_BYTES;
    passOver(feed, 3);
    assert.deepEqual(shadow.rows(), []);
    shadow.backlogBytes = 0;
    passOver(feed, 4);
    assert.deepEqual(shadow.rows(), ['0:0-4', '1:0-4']);
  });

  it('begins again at a shadow that has dropped the sequence, a few times', () => {
    const shadow = new RecordingShadow('s');
    const current: { current: FedShadow } = { current: shadow };
    const feed = feedFor(current, 1, 1);
    feed.followShadow(PROMPT, 0);
    feed.dropped(new RecordingShadow('another'));
    assert.equal(feed.fed, true);
    const soFar = [...PROMPT];
    for (let iteration = 0; iteration < 2 * MAX_SHADOW_BEGINS; iteration++) {
      feed.dropped(shadow);
      assert.equal(feed.fed, false);
      feed.token(tokenAt(soFar.length, 40));
      soFar.push(40);
      feed.followShadow(soFar, soFar.length);
    }
    const begins = shadow.sent.flatMap((request) => (request.kind === 'begin' ? [request.begin.tokenIds.length] : []));
    assert.deepEqual(begins, [3, 4, 5, 6]);
    assert.equal(shadow.sent.length, MAX_SHADOW_BEGINS, 'a shadow without the sequence gets no message about it');
    current.current = new RecordingShadow('next');
    feed.followShadow(soFar, soFar.length);
    assert.equal(feed.fed, true);
  });

  it('sends nothing more to a lost shadow, and the answer goes on', () => {
    const shadow = new RecordingShadow('s');
    const feed = feedFor({ current: shadow }, 1, 1);
    feed.followShadow(PROMPT, 0);
    shadow.alive = false;
    feed.followShadow(PROMPT, 3);
    const sent = shadow.sent.length;
    feed.token(tokenAt(3, 40));
    passOver(feed, 4);
    assert.equal(shadow.sent.length, sent);
  });

  it('learns of a lost shadow or a dropped sequence, and wakes a pass that waits', () => {
    const post = new PredictionPost(
      { placement: null, worker: () => null, endSequence: () => undefined },
      new AnnouncedPasses(),
    );
    const listener = {
      onPrediction: () => undefined,
      onRestart: () => undefined,
      onDraft: () => undefined,
      onPrefixKept: () => true,
      onSequenceDropped: (sequence: number, by: ShadowLink) => {
        post.dropped(sequence, by);
      },
      onDrained: (by: ShadowLink) => {
        post.drained(by);
      },
      onLost: (by: ShadowLink) => {
        post.lost(by);
      },
    };
    const stream = new MemoryStream<ShadowRequest, ShadowReply>();
    const link = new ShadowLink(
      IDENTITY,
      's:1',
      stream,
      { expertLayers: LAYERS, experts: 8, vocabSize: 300 },
      listener,
      SILENT,
    );
    const feed = feedFor({ current: link }, 1, 1);
    let woken = 0;
    const drafts = { ...NO_DRAFTS, shadowLost: () => void (woken += 1) };
    post.open(9, { predictions: { arrive: () => 'ignored', restart: () => undefined }, feed, drafts });
    feed.followShadow(PROMPT, 0);
    for (const [code, requestId, fed] of [
      ['QUEUE_FULL', 8, true],
      ['STALE_EPOCH', 9, true],
      ['QUEUE_FULL', 9, false],
    ] as const) {
      link.receive({ kind: 'error', error: { code, message: '', requestId, epoch: 3 } });
      assert.equal(feed.fed, fed, `${code} of ${requestId}`);
      assert.equal(woken, fed ? 0 : 1);
    }
    feed.followShadow(PROMPT, 0);
    link.streamClosed();
    assert.equal(woken, 2);
    assert.equal(feed.isFedBy(link), false);
  });
});
