import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { listeningAddress, servedUrl } from '../../cli/demo/daemon-process.js';
import { missingNodes } from '../../cli/demo/demo-cluster.js';
import { demoTable } from '../../cli/demo/demo-table.js';
import { curlLine, servingAt, servingJson, servingLines } from '../../cli/demo/serving.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { Finished, NodeIdentity, NodeStatus, StatusReply } from '../../shared/wire/messages.js';
import { plainIdentity } from './plain-identity.js';

function identity(id: string, role: NodeIdentity['role']): NodeIdentity {
  return plainIdentity({ id, role, cluster: 'demo', modelName: 'demo', device: 'cpu scalar, 1 threads' });
}

function nodeStatus(id: string, role: NodeIdentity['role'], highWaterBytes: number): NodeStatus {
  return {
    ...emptyNodeStatus(identity(id, role)),
    deviceMemoryHighWaterBytes: highWaterBytes,
    slots: role === 'ROLE_WORKER' ? 2 : 0,
    slotBytes: role === 'ROLE_WORKER' ? 1024 : 0,
  };
}

function status(known: string[], placed: string[], problems: StatusReply['problems'] = []): StatusReply {
  const role = (id: string) => (id === 'main' ? 'ROLE_MAIN' : id === 'shadow' ? 'ROLE_SHADOW' : 'ROLE_WORKER');
  return {
    nodes: known.map((id) => nodeStatus(id, role(id), 0)),
    placement: {
      epoch: 1,
      workers: placed.map((id) => ({ id, address: '127.0.0.1:1', slots: 2 })),
      groups: [{ workerIds: placed }],
      layers: 1,
      experts: 2,
      expertsPerToken: 1,
      homes: 0,
      spread: false,
    },
    activeSequences: 0,
    queuedRequests: 0,
    problems,
    requests: 0,
    tokens: 0,
    groupReason: '',
    workerHops: [],
    passes: null,
    ownWorkerId: '',
    layerWaits: [],
    workerWaits: [],
    links: [],
    httpAddress: '',
  };
}

const DAEMONS = [
  { role: 'main', id: 'main' },
  { role: 'shadow', id: 'shadow' },
  { role: 'worker', id: 'worker-1' },
  { role: 'worker', id: 'worker-2' },
] as const;

describe('demo orchestration:', () => {
  it('the reader of a daemon’s address takes its one line, and ignores other output', () => {
    assert.equal(listeningAddress('odmoe worker worker-3 listening on 127.0.0.1:40001\n'), '127.0.0.1:40001');
    assert.equal(listeningAddress('odmoe main m listening on [::1]:7600\nmore\n'), '[::1]:7600');
    const ready = 'odmoe main m listening on [::1]:7600\nodmoe main m serves HTTP at http://127.0.0.1:7680\n';
    assert.deepEqual([listeningAddress(ready), servedUrl(ready)], ['[::1]:7600', 'http://127.0.0.1:7680']);
    assert.equal(servedUrl('odmoe main m listening on [::1]:7600\n'), null);
    assert.equal(listeningAddress('odmoe worker worker-3 listening on'), null);
    assert.equal(listeningAddress('starting; nothing listening on 127.0.0.1:1\n'), null);
  });

  it('a cluster is whole when main knows every daemon and has placed every worker', () => {
    const everyone = DAEMONS.map(({ id }) => id);
    assert.deepEqual(missingNodes(status(everyone, ['worker-1', 'worker-2']), DAEMONS), []);
  });

  it('the wait names the missing daemons, and the reason where main knows it', () => {
    const refused = { address: '127.0.0.1:5', id: 'worker-2', code: 'NODE_REFUSED', message: 'another pack' };
    const missing = missingNodes(status(['main', 'worker-1', 'worker-2'], ['worker-1'], [refused]), DAEMONS);
    assert.deepEqual(missing, ['shadow has not joined', 'worker-2 has not joined (another pack)']);
  });

  it('the table shows recall, reloads, speed and every node’s memory beside the model’s experts', () => {
    const finished: Finished = {
      finishReason: 'length',
      text: '',
      timing: {
        ttftMs: 12.34,
        tpotMs: 5,
        decodeTokensPerS: 200,
        outputTokensPerS: 180,
        queuedMs: 0,
        ioStallMs: 0,
      },
      drafts: null,
      stopString: '',
      cachedTokens: 0,
      sep: {
        recall: 0.9975,
        activated: 400,
        predictedCorrectly: 399,
        late: 5,
        correctByIteration: [],
        activatedByIteration: [],
      },
      reloads: 7,
      nodes: [
        nodeStatus('main', 'ROLE_MAIN', 1024 * 1024),
        nodeStatus('worker-1', 'ROLE_WORKER', 3 * 1024),
        nodeStatus('worker-2', 'ROLE_WORKER', 4 * 1024),
      ],
    };
    const table = demoTable(finished, 12 * 1024 * 1024);
    for (const part of ['99.75 %', '399 of 400', '12.3 ms', '200.0 tokens/s', '1.05 MB', '7.17 KB', '12.6 MB']) {
      assert.ok(table.includes(part), `${part} is not in\n${table}`);
    }
    assert.match(table, /reloads\s+7 \(.*5 layers' came too late\)\n/);
    assert.match(demoTable({ ...finished, sep: null }, 1), /reloads\s+7\n/);
    assert.match(demoTable({ ...finished, sep: null }, 1), /no shadow/);
  });
});

describe('a demo that serves HTTP clients', () => {
  it('names an address that works on this machine, wherever main listens', () => {
    assert.equal(servingAt('127.0.0.1:7680', 'demo', false).url, 'http://127.0.0.1:7680');
    assert.equal(servingAt('0.0.0.0:80', 'demo', false).url, 'http://127.0.0.1:80');
    assert.equal(servingAt('[::1]:80', 'demo', false).url, 'http://[::1]:80');
    assert.throws(() => servingAt('', 'demo', false), { code: 'INTERNAL' });
  });

  it('prints a command that a shell does not alter', () => {
    const line = curlLine(servingAt('127.0.0.1:1', `it's "a" $model`, true));
    const printed = execFileSync('sh', ['-c', line.replace(/^curl/, 'printf "%s\\n"')], { encoding: 'utf8' });
    const words = printed.trim().split('\n');
    assert.deepEqual(words.slice(0, -1), [
      'http://127.0.0.1:1/v1/chat/completions',
      '-H',
      'content-type: application/json',
      '-H',
      'authorization: Bearer YOUR_KEY',
      '-d',
    ]);
    assert.equal((JSON.parse(words.at(-1) ?? '') as { model: string }).model, `it's "a" $model`);
    assert.ok(!curlLine(servingAt('127.0.0.1:1', 'demo', false)).includes('Bearer'));
    const own = { ...servingAt('127.0.0.1:1', 'demo', true), key: 'made-key' };
    assert.ok(curlLine(own).includes('Bearer made-key'));
    assert.match(
      servingLines(own, '127.0.0.1:7600')[0] ?? '',
      /Open http:\/\/127\.0\.0\.1:1\/#key=made-key in a browser/,
    );
    assert.deepEqual(servingJson(own, '127.0.0.1:7600')['key'], 'made-key');
  });
});
