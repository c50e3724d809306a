import assert from 'node:assert/strict';
import { type MessageCodec } from '../../shared/wire/codecs.js';
import type {
  AlignRows,
  Execute,
  NodeIdentity,
  PackDescription,
  Placement,
  Predict,
  ReadPackRequest,
  ShadowReply,
  ShadowRequest,
  WorkerReply,
  WorkerRequest,
} from '../../shared/wire/messages.js';
import { plainExecute, plainPrediction, plainRelease, plainResult } from './wire-messages.js';
import { METHODS } from '../../shared/transport/methods.js';
import { plainIdentity } from './plain-identity.js';

/** Copies of the numbers in shared/wire/limits.ts. A change there must be repeated here. */
const ROWS_LIMIT = 65_536;
const TEXT_LIMIT = 4096;
const SOURCES_LIMIT = 64;
const POSITIONS_LIMIT = 2 ** 32;
const ROSTER_LIMIT_BYTES = 384 * 1024;
/** Longest message of an error. It is logged, so it must be short whatever the peer has sent. */
const ERROR_TEXT_LIMIT = 400;

const IDENTITY: NodeIdentity = plainIdentity({ cluster: 'c', address: 'h:1' });
const PLACEMENT: Placement = {
  epoch: 1,
  workers: [],
  groups: [],
  layers: 1,
  experts: 1,
  expertsPerToken: 1,
  homes: 0,
  spread: false,
};

function through<T>(codec: MessageCodec<T>, message: T): T {
  return codec.decode(codec.encode(message));
}

const throughWorker = (request: WorkerRequest): unknown => through(METHODS.worker.serve.request, request);
const fromWorker = (reply: WorkerReply): unknown => through(METHODS.worker.serve.reply, reply);
const throughShadow = (request: ShadowRequest): unknown => through(METHODS.shadow.serve.request, request);
const fromShadow = (reply: ShadowReply): unknown => through(METHODS.shadow.serve.reply, reply);

function violates(decode: () => unknown, what: string): void {
  assert.throws(
    decode,
    (thrown: Error & { code?: unknown }) => {
      assert.equal(thrown.code, 'PROTOCOL_VIOLATION', thrown.message);
      assert.ok(thrown.message.length <= ERROR_TEXT_LIMIT, `${thrown.message.length} characters of an error`);
      return true;
    },
    `${what} is taken`,
  );
}

const letters = (count: number): string => 'x'.repeat(count);
const executed = (change: Partial<Execute>): unknown =>
  throughWorker({ kind: 'execute', execute: { ...plainExecute({ layer: 0, expert: 0 }), ...change } });
/** Two bytes for each row. */
const executedRows = (rows: number): unknown =>
  executed({
    rows: [{ sequence: 1, position: 0, rows }],
    hiddenSize: 1,
    dtype: 'TENSOR_TYPE_BF16',
    hidden: Buffer.alloc(2 * rows),
  });
const predicted = (change: Partial<Predict>): unknown =>
  throughWorker({ kind: 'predict', predict: { ...plainPrediction({ layer: 0, experts: [1, 2] }), ...change } });
const predictedByShadow = (change: Partial<Predict>): unknown =>
  fromShadow({ kind: 'predict', predict: { ...plainPrediction({ layer: 0, experts: [1, 2] }), ...change } });
const announced = (rows: number): unknown =>
  throughWorker({
    kind: 'announce',
    announce: { ...plainPrediction({ layer: 0, experts: [1] }), rows: [{ sequence: 1, position: 0, rows }] },
  });
const expectedCritical = (critical: number[]): (() => unknown)[] => {
  const expected = { ...plainPrediction({ layer: 0, experts: [1, 2] }), critical };
  return [
    () => throughWorker({ kind: 'announce', announce: expected }),
    () => predicted({ critical }),
    () => predictedByShadow({ critical }),
  ];
};
const released = (rows: number, position = 0): unknown =>
  throughWorker({
    kind: 'release',
    release: { ...plainRelease({ layer: 0, experts: [1] }), rows: [{ sequence: 1, position, rows }] },
  });
const cacheRows = (change: Partial<AlignRows>): unknown =>
  throughShadow({
    kind: 'cacheRows',
    cacheRows: { epoch: 1, sequence: 1, layer: 0, position: 0, rows: 2, values: Buffer.alloc(16), ...change },
  });
const begun = (promptTokens: number, tokens: number): unknown =>
  throughShadow({
    kind: 'begin',
    begin: {
      epoch: 1,
      sequence: 2,
      tokenIds: Array.from({ length: tokens }, () => 5),
      alignTokenPeriod: 1,
      alignKvPeriod: 1,
      promptTokens,
      maxPositions: 100,
      optimistic: false,
      spread: false,
      sampling: { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 },
    },
  });
const placed = (change: Partial<Placement>): unknown =>
  throughWorker({ kind: 'placement', placement: { ...PLACEMENT, ...change } });
const prospect = (sources: string[]): unknown =>
  throughWorker({ kind: 'prospect', prospect: { number: 1, placement: PLACEMENT, sources } });

describe('the critical experts of a prediction or an announce', () => {
  it('are among its experts', () => {
    for (const critical of [[], [1], [2, 1]]) for (const decode of expectedCritical(critical)) decode();
    for (const decode of expectedCritical([1, 3])) violates(decode, 'critical experts that are not named');
  });
});

describe('the rows of RPC messages', () => {
  const ofRows: [what: string, decode: (rows: number) => unknown][] = [
    ['an execute', executedRows],
    ['a prediction', (rows) => predicted({ rows: [{ sequence: 1, position: 0, rows }] })],
    ['a prediction of shadow', (rows) => predictedByShadow({ rows: [{ sequence: 1, position: 0, rows }] })],
    ['an announce', announced],
    ['a release', (rows) => released(rows)],
    ['rows of the cache', (rows) => cacheRows({ rows, values: Buffer.alloc(4 * Math.max(1, rows)) })],
  ];
  for (const [what, decode] of ofRows) {
    it(`an RPC message has 1 to ${ROWS_LIMIT} rows of ${what}`, () => {
      for (const rows of [1, 2, ROWS_LIMIT - 1, ROWS_LIMIT]) decode(rows);
      for (const rows of [0, ROWS_LIMIT + 1]) violates(() => decode(rows), `${rows} rows of ${what}`);
    });
  }

  it('that read upper slices ascend, and are rows of their expert', () => {
    const three = { rows: [{ sequence: 1, position: 0, rows: 3 }], hiddenSize: 1, hidden: Buffer.alloc(12) };
    const reads = (rows: number[], upper: number[]): unknown =>
      executed({ ...three, experts: [{ expert: 0, rows, last: true, upper }] });
    for (const upper of [[], [0], [2], [0, 1, 2]]) reads([], upper);
    reads([0, 2], [1]);
    for (const upper of [[3], [1, 0], [1, 1]]) violates(() => reads([], upper), `upper slices of rows ${upper.join()}`);
    violates(() => reads([0, 2], [2]), "the upper slice of a row that is not the expert's");
  });

  it('are limited for all runs together', () => {
    const runs = (...counts: number[]): Predict['rows'] =>
      counts.map((rows, sequence) => ({ sequence, position: 0, rows }));
    predicted({ rows: runs(ROWS_LIMIT - 1, 1) });
    violates(() => predicted({ rows: runs(ROWS_LIMIT - 1, 2) }), 'a row too many');
    violates(() => predicted({ rows: runs(1, 0) }), 'a run of no rows');
    violates(() => predicted({ rows: [] }), 'no run');
  });

  it('end at the greatest position', () => {
    released(1, POSITIONS_LIMIT - 1);
    released(2, POSITIONS_LIMIT - 2);
    violates(() => released(2, POSITIONS_LIMIT - 1), 'a row behind the last position');
  });

  it('have as many bytes as declared', () => {
    for (const values of [Buffer.alloc(8), Buffer.alloc(16), Buffer.alloc(24)]) cacheRows({ values });
    for (const bytes of [0, 4, 12, 15, 17])
      violates(() => cacheRows({ values: Buffer.alloc(bytes) }), `${bytes} bytes`);
    const hidden = (bytes: number, hiddenSize = 2): unknown => executed({ hiddenSize, hidden: Buffer.alloc(bytes) });
    hidden(8);
    for (const bytes of [0, 7, 9]) violates(() => hidden(bytes), `${bytes} bytes`);
    violates(() => hidden(0, 0), 'rows of no values');
  });

  it('are in the message and in ascending order for each expert', () => {
    const rows = [{ sequence: 1, position: 0, rows: 3 }];
    const on = (...indexes: number[]): unknown =>
      executed({ rows, hidden: Buffer.alloc(12), experts: [{ expert: 1, rows: indexes, last: true }] });
    for (const indexes of [[], [0], [2], [0, 2], [0, 1, 2]]) on(...indexes);
    for (const indexes of [[3], [0, 3], [1, 1], [2, 1]]) violates(() => on(...indexes), `rows ${indexes.join()}`);
  });
});

describe('the lists of RPC messages', () => {
  it('name an expert once, and at least one', () => {
    const of = (...ids: number[]): Execute['experts'] => ids.map((expert) => ({ expert, rows: [], last: true }));
    executed({ experts: of(1, 2) });
    violates(() => executed({ experts: of() }), 'no expert');
    violates(() => executed({ experts: of(1, 2, 1) }), 'an expert twice');
    const results = (...ids: number[]): unknown => {
      const [one] = plainResult({ requestId: 1 }).experts;
      assert.ok(one !== undefined);
      const experts = ids.map((expert) => ({ ...one, expert }));
      return fromWorker({ kind: 'result', result: plainResult({ requestId: 1, experts }) });
    };
    results(1, 2);
    violates(() => results(1, 2, 1), 'a result of an expert twice');
  });

  it('assign all experts of a prediction, or none', () => {
    for (const workers of [[], [0, 1]]) predictedByShadow({ workers });
    for (const workers of [[0], [0, 1, 2]])
      violates(() => predictedByShadow({ workers }), `${workers.length} workers for two experts`);
  });

  it('hold the prompt where they hold tokens', () => {
    for (const promptTokens of [0, 2, 3]) begun(promptTokens, 3);
    violates(() => begun(4, 3), 'a prompt longer than the tokens');
  });

  it('name each worker once, and no unknown worker in groups', () => {
    const worker = (id: string): Placement['workers'][number] => ({ id, address: 'h:1', slots: 1 });
    placed({ workers: [worker('a'), worker('b')], groups: [{ workerIds: ['a', 'b'] }] });
    violates(() => placed({ workers: [worker('a'), worker('b'), worker('a')] }), 'a worker twice');
    violates(() => placed({ workers: [worker('a')], groups: [{ workerIds: ['a', letters(1000)] }] }), 'a stranger');
  });

  it('have no kept experts, or a bit for each expert', () => {
    const kept = (bytes: number): unknown =>
      placed({
        layers: 3,
        experts: 3,
        workers: [{ id: 'a', address: 'h:1', slots: 1, keptExperts: Buffer.alloc(bytes) }],
        groups: [{ workerIds: ['a'] }],
      });
    for (const bytes of [0, 2]) kept(bytes);
    for (const bytes of [1, 3, 1000]) violates(() => kept(bytes), `${bytes} bytes`);
  });

  it(`of sources have ${SOURCES_LIMIT} at most, each an address`, () => {
    const sources = (count: number): string[] => Array.from({ length: count }, () => 'h:1');
    for (const count of [0, SOURCES_LIMIT - 1, SOURCES_LIMIT]) prospect(sources(count));
    violates(() => prospect(sources(SOURCES_LIMIT + 1)), 'a source too many');
    violates(() => prospect(['h:1', 'h']), 'no port');
  });
});

describe('the roster that main sends', () => {
  it('has a bounded number of bytes', () => {
    for (const through of [throughWorker, throughShadow]) {
      const send = (bytes: number): unknown =>
        through({ kind: 'roster', roster: { signed: Buffer.alloc(bytes, 'r') } });
      for (const bytes of [1, ROSTER_LIMIT_BYTES]) {
        assert.deepEqual(send(bytes), { kind: 'roster', roster: { signed: Buffer.alloc(bytes, 'r') } });
      }
      for (const bytes of [0, ROSTER_LIMIT_BYTES + 1]) violates(() => send(bytes), `${bytes} bytes`);
    }
  });
});

describe('the identity of a peer', () => {
  it('has an id and a role', () => {
    const hello = (change: Partial<NodeIdentity>): unknown =>
      throughWorker({ kind: 'hello', hello: { ...IDENTITY, ...change } });
    for (const role of ['ROLE_MAIN', 'ROLE_SHADOW', 'ROLE_WORKER'] as const) hello({ role });
    violates(() => hello({ role: 'ROLE_UNSPECIFIED' }), 'no role');
    violates(() => hello({ id: '' }), 'no id');
  });
});

describe('RPC messages about packs', () => {
  const described = (change: Partial<PackDescription>): unknown =>
    through(METHODS.pack.describe.reply, {
      packDigest: 'd',
      layers: 3,
      experts: 3,
      heldExperts: Buffer.alloc(2),
      whole: false,
      ...change,
    });
  const read = (change: Partial<ReadPackRequest>): unknown =>
    through(METHODS.pack.read.request, { packDigest: 'd', file: 'f', offsetBytes: 0, lengthBytes: 1, ...change });

  it('have a bit for each expert', () => {
    described({});
    for (const bytes of [0, 1, 3]) violates(() => described({ heldExperts: Buffer.alloc(bytes) }), `${bytes} bytes`);
    violates(() => described({ layers: 0, heldExperts: Buffer.alloc(0) }), 'no layer');
    violates(() => described({ experts: 0, heldExperts: Buffer.alloc(0) }), 'no expert');
  });

  it('have two bits for the slices of each expert, where there are slices', () => {
    const bits = (upper: number, lower: number, digest = 'd') => ({
      slices: { digest, heldUpper: Buffer.alloc(upper), heldLower: Buffer.alloc(lower) },
    });
    described(bits(2, 2));
    violates(() => described(bits(1, 2)), 'too few upper bits');
    violates(() => described(bits(2, 3)), 'too many lower bits');
    violates(() => described(bits(2, 2, '')), 'no digest');
  });

  it('have short texts', () => {
    for (const length of [TEXT_LIMIT - 1, TEXT_LIMIT]) {
      described({ packDigest: letters(length) });
      read({ file: letters(length) });
    }
    violates(() => described({ packDigest: letters(TEXT_LIMIT + 1) }), 'a long digest');
    violates(() => read({ file: letters(TEXT_LIMIT + 1) }), 'a long name');
  });

  it('request at least one byte, with exact numbers', () => {
    read({ lengthBytes: 1, offsetBytes: Number.MAX_SAFE_INTEGER });
    for (const lengthBytes of [0, -1, 2 ** 53]) violates(() => read({ lengthBytes }), `${lengthBytes} bytes`);
    violates(() => read({ offsetBytes: 2 ** 53 }), 'a byte whose number is not exact');
  });

  it('an RPC message about packs contains bytes', () => {
    through(METHODS.pack.read.reply, { bytes: Buffer.alloc(1) });
    violates(() => through(METHODS.pack.read.reply, { bytes: Buffer.alloc(0) }), 'an empty pack piece');
  });
});
