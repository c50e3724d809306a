import assert from 'node:assert/strict';
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { expertsFlags, requireNameFirst, requireStart } from '../../cli/commands/run.js';
import { type Machines, machinesOf } from '../../cli/models/cluster-machines.js';
import { estimateLines, type RunEstimate } from '../../cli/models/run-estimate.js';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { StatusReply } from '../../shared/wire/messages.js';

type Node = StatusReply['nodes'][number];

function node(role: string, address: string, values: Partial<Node> = {}): Node {
  return {
    identity: { role, address },
    loads: 0,
    loadMsMean: 0,
    slotBytes: 0,
    deviceMemoryBudgetBytes: 0,
    ...values,
  } as Node;
}

const MIB = 1024 ** 2;

function speedLine(machines: Machines): string {
  const estimate: RunEstimate = {
    machines,
    neededBytes: 1,
    memoryBytes: 2,
    gpuBytes: null,
    expertBytes: 1,
    runsExperts: true,
    diskNeededBytes: 0,
    diskFreeBytes: null,
    tokensPerS: 3.21,
    profile: 'orin',
  };
  const lines = estimateLines(estimate);
  return [lines[0] ?? '', lines.at(-1) ?? ''].join('\n');
}

describe('the estimate of odmoe run', () => {
  const status = {
    nodes: [
      node('ROLE_MAIN', '10.0.0.1:7600'),
      node('ROLE_WORKER', '10.0.0.1:7600', { loads: 9, loadMsMean: 1, slotBytes: MIB }),
      node('ROLE_WORKER', '10.0.0.2:7602', {
        loads: 9,
        loadMsMean: 4,
        slotBytes: 8 * MIB,
        deviceMemoryBudgetBytes: 99,
      }),
      node('ROLE_WORKER', '10.0.0.3:7602', { slotBytes: 8 * MIB }),
      node('ROLE_SHADOW', '10.0.0.4:7601'),
    ],
  };

  it('counts the workers that are connected, with the rate and the memory of each', () => {
    assert.deepEqual(machinesOf(status), {
      workers: 2,
      hasShadow: true,
      source: 'measured',
      boxes: [
        { count: 1, linkBytesPerS: 2000 * MIB, memoryBytes: 99 },
        { count: 1, linkBytesPerS: null, memoryBytes: null },
      ],
    });
    assert.equal(machinesOf({ nodes: status.nodes.slice(0, 2) }).workers, 0, "main's own worker is no machine more");
  });

  it('says on what it is founded', () => {
    const machines = machinesOf(status);
    const some = speedLine(machines);
    assert.match(some, /2 workers and a shadow \(connected to the main that runs here\)/);
    assert.match(
      some,
      /3\.2 tokens\/s with the loads that 1 of these workers have measured, in all else boxes like .* orin/,
    );
    const all = speedLine({ ...machines, workers: 1, boxes: machines.boxes.slice(0, 1) });
    assert.ok(!`${some}${all}`.includes('not measured here'));
    assert.match(all, /the loads that these workers have measured/);
    assert.match(
      speedLine({ ...machines, source: 'asked', boxes: [] }),
      /\(--workers\)\n {2}speed: {3}not measured here; about 3\.2 tokens\/s with boxes like those of the profile orin/,
    );
  });
});

describe('the main that odmoe run starts', () => {
  function settingsOf(flags: readonly string[]): NodeSettings {
    const request = parseDaemonFlags('main', ['--model', '.', ...flags]);
    assert.ok(request.kind === 'run');
    return request.settings;
  }

  it('runs experts, too, whatever the estimate counts, unless the user has said where they run', () => {
    const plain = settingsOf([]);
    assert.deepEqual(expertsFlags([], plain), ['--experts', 'both']);
    for (const flags of [['--experts', 'workers'], ['--experts=local']])
      assert.deepEqual(expertsFlags(flags, settingsOf(flags)), []);
    assert.deepEqual(expertsFlags([], settingsOf(['--experts', 'local'])), [], 'as cluster.yaml may say');
    const worker = { id: 'w', role: 'worker', address: '10.0.0.2:7602' } as NodeSettings['discovery']['peers'][number];
    const shadow = { ...worker, role: 'shadow' } as typeof worker;
    const named = (peer: typeof worker): NodeSettings => ({
      ...plain,
      discovery: { ...plain.discovery, peers: [peer] },
    });
    assert.deepEqual(expertsFlags([], named(worker)), []);
    assert.deepEqual(expertsFlags([], named(shadow)), ['--experts', 'both']);
  });

  it('is not waited for through a download where its port, or that of its page, is taken', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    try {
      const state = { stateDirectory: '/nowhere', listenHost: '127.0.0.1' };
      const { main } = settingsOf(['--http', 'off']);
      const words = {
        code: 'PORT_UNAVAILABLE',
        message: /a program listens at 127.*no weights were downloaded.*--dry-run/,
      };
      await assert.rejects(requireStart({ ...state, listenPort: port, main }), words);
      const page = settingsOf(['--http', `127.0.0.1:${port}`]).main;
      await assert.rejects(requireStart({ ...state, listenPort: 0, main: page }), words);
      await requireStart({ ...state, listenPort: 0, main });
    } finally {
      server.close();
    }
  });

  it('gets its flags behind the name of the model, and the right order is shown', () => {
    assert.equal(requireNameFirst('owner/demo', ['--lan']), 'owner/demo');
    assert.throws(() => requireNameFirst('--lan', ['owner/demo', '--cluster', 'home']), {
      code: 'USAGE',
      message: 'flags of main stand behind the name of the model: odmoe run owner/demo --lan --cluster home',
    });
    assert.throws(() => requireNameFirst('--lan', []), { message: /odmoe run OWNER\/NAME --lan$/ });
  });
});
