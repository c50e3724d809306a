import assert from 'node:assert/strict';
import type { PeerMessage } from '../../shared/rpc/stream-pace.js';
import { checkLinkBytes } from '../../simulator/faults/accounts/check-link-bytes.js';
import { KeptWatch } from '../../simulator/faults/accounts/kept-watch.js';
import { ToldWatch } from '../../simulator/faults/accounts/told-watch.js';
import { checkRests } from '../../simulator/faults/check-rests.js';
import { checkSizes, type NodeSizes } from '../../simulator/faults/check-sizes.js';

const EPOCH = 5;
const NO_BYTES = new Uint8Array();
const PLACEMENT = {
  kind: 'placement',
  placement: { epoch: EPOCH, workers: [{ id: 'w0' }, { id: 'w1' }], spread: true },
} as unknown as PeerMessage;

function prediction(position: number, layer: number, experts: number[]): PeerMessage {
  const pass = { sequence: 1, position };
  return {
    kind: 'prediction',
    prediction: { epoch: EPOCH, pass, rows: [{ ...pass, rows: 1 }], layer, experts, workers: [], restart: false },
  };
}

function execute(requestId: number, position: number, layer: number, experts: number[]): PeerMessage {
  const pass = { sequence: 1, position };
  return {
    kind: 'execute',
    execute: {
      requestId,
      epoch: EPOCH,
      hiddenSize: 1,
      dtype: 'TENSOR_TYPE_F32',
      pass,
      rows: [{ ...pass, rows: 1 }],
      layer,
      hidden: NO_BYTES,
      experts: experts.map((expert) => ({ expert, rows: [], last: true })),
    },
  };
}

function release(position: number, layer: number, experts: number[]): PeerMessage {
  const pass = { sequence: 1, position };
  return { kind: 'release', release: { epoch: EPOCH, pass, rows: [{ ...pass, rows: 1 }], layer, experts } };
}

describe('what watches simulated clusters', () => {
  const toldBy = (...messages: PeerMessage[]): number => {
    const watch = new ToldWatch('main');
    for (const message of messages) watch.messages('sent', 'main', 'w0', message);
    return watch.violations.length;
  };

  it('finds an expert that a worker was told of and that main neither asks for nor releases', () => {
    const told = prediction(7, 0, [2, 3]);
    assert.equal(toldBy(told, execute(1, 7, 0, [2]), release(7, 0, [3]), execute(2, 7, 1, [1])), 0);
    assert.equal(toldBy(told, execute(1, 7, 0, [2]), execute(2, 7, 1, [1])), 1, 'a later layer');
    assert.equal(toldBy(told, execute(1, 8, 0, [2])), 2, 'a later pass');
    assert.equal(toldBy(told, PLACEMENT, execute(1, 8, 0, [2])), 0, 'told under another placement');
  });

  it('finds what a worker keeps and shadow is not told of', () => {
    const keptBy = (kept: { worker: number; layer: number; experts: number[] }[]): string[] => {
      const watch = new KeptWatch('main');
      watch.messages('sent', 'main', 'w1', PLACEMENT);
      watch.messages('sent', 'main', 'w1', execute(9, 7, 2, [4]));
      const result = { requestId: 9, epoch: EPOCH, experts: [], kept: { experts: [4, 1] } };
      watch.messages('arrived', 'w1', 'main', { kind: 'result', result } as unknown as PeerMessage);
      watch.messages('sent', 'main', 's0', { kind: 'token', token: { epoch: EPOCH, kept } } as unknown as PeerMessage);
      return watch.violations;
    };
    assert.deepEqual(keptBy([{ worker: 1, layer: 2, experts: [1, 4] }]), []);
    assert.equal(keptBy([]).length, 1);
    assert.equal(keptBy([{ worker: 0, layer: 2, experts: [1, 4] }]).length, 1, 'told of another worker');
  });

  it('finds bytes of a connection that are not counted', () => {
    const carried = new Map([['w0', { sent: 10, arrived: 20 }]]);
    const told = (sent: number): ReadonlyMap<string, number> =>
      new Map([
        ['odmoe_link_sent_bytes_total{node="w0"}', sent],
        ['odmoe_link_received_bytes_total{node="w0"}', 20],
      ]);
    assert.deepEqual(checkLinkBytes(told(10), carried), []);
    assert.equal(checkLinkBytes(told(9), carried).length, 1);
    assert.deepEqual(checkLinkBytes(new Map(), carried), [], 'of who is not connected nothing is told');
  });

  it('finds what has grown between two rests', () => {
    const rest = (entries: number): ReadonlyMap<string, number> => new Map([['entries of main', entries]]);
    assert.deepEqual(checkRests([rest(2), rest(2), rest(1)]), []);
    assert.equal(checkRests([rest(2), rest(2), rest(3)]).length, 1);
  });

  it('finds collections that have grown, and those with a bound where they have grown beyond it', () => {
    const sizesOf = (name: string, size: number): NodeSizes => new Map([['main', new Map([[name, size]])]]);
    const grows = (name: string, from: number, to: number): boolean =>
      checkSizes(sizesOf(name, from), sizesOf(name, to)).length > 0;
    assert.deepEqual([grows('Roster.waiting', 2, 2), grows('Roster.waiting', 2, 3)], [false, true]);
    assert.deepEqual([grows('ClientShares.rows', 0, 1), grows('ClientShares.rows', 1, 2)], [false, true]);
    assert.equal(checkSizes(new Map(), sizesOf('Roster.waiting', 3)).length, 0, 'the node was not there before');
    assert.equal(checkSizes(new Map([['main', new Map()]]), sizesOf('Roster.waiting', 1)).length, 1, 'it was empty');
  });
});
