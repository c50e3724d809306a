import assert from 'node:assert/strict';
import {
  distributedLlamaSystem,
  llamaSystem,
  odmoeSystem,
  parseDistributedLlama,
  parseLlamaBench,
  parseOdmoe,
  promptIds,
  type Server,
  type Speeds,
} from '../../../bench/peers/systems.js';
import {
  type GivenFiles,
  requireGivenFiles,
  requireLlamaFiles,
  requireWhole,
} from '../../../bench/peers/given-files.js';
import { RunningProcess } from '../../../bench/peers/running-process.js';
import { llamaBenchCommand, sameFileEngines } from '../../../bench/peers/same-file.js';
import { lanFigures } from '../../../bench/peers/lan-figures.js';
import { spreadOf } from '../../../bench/statistics/spread.js';
import { withSyntheticPack } from '../../../bench/load/index.js';
import { codecSetting } from '../../../packs/format/pack-codec.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import { parseDaemonFlags } from '../../../engine/daemon/parse-daemon-flags.js';

const HOSTS = [1, 2, 3].map((number) => ({ namespace: `n${number}`, address: `10.0.0.${number}` }));
const WORKLOAD = { promptTokens: 16, answerTokens: 8, threads: 1 };

function settingsOf(servers: readonly Server[]): NodeSettings[] {
  return servers.map(({ command }) => {
    const [role, ...flags] = command.slice(2);
    assert.ok(role === 'main' || role === 'worker');
    const request = parseDaemonFlags(role, flags);
    assert.ok(request.kind === 'run');
    return request.settings;
  });
}

describe('odmoe bench peers', () => {
  it('starts daemons with flags that they accept, each on the address of its host', () => {
    const { servers } = odmoeSystem('/packs/p', HOSTS, WORKLOAD, false);
    const settings = settingsOf(servers);
    assert.deepEqual(
      settings.map(({ id, device }) => [id, device.threads]),
      [
        ['main', 1],
        ['worker-1', 1],
        ['worker-2', 1],
      ],
    );
    assert.deepEqual(
      servers.map(({ host }) => host),
      HOSTS,
    );
    // They listen beyond loopback and have no authority, as the other systems.
    assert.deepEqual(
      settings.map(({ joining }) => joining.insecure),
      [true, true, true],
    );
  });

  it('measures odmoe without drafts, and with those of the default settings', () => {
    const rows = [false, true].map((drafts) => {
      const { name, servers } = odmoeSystem('/packs/p', HOSTS, WORKLOAD, drafts);
      return [name, settingsOf(servers)[0]?.drafting.rows];
    });
    assert.deepEqual(rows, [
      ['odmoe', 1],
      ['odmoe with drafts', 'auto'],
    ]);
  });

  it('makes every other host a worker of the peers, as far as they support it', () => {
    const llama = llamaSystem('/llama', '/m.gguf', HOSTS, WORKLOAD);
    assert.deepEqual([llama.measureHost, llama.servers.map(({ host }) => host)], [HOSTS[0], HOSTS.slice(1)]);
    assert.ok(llama.measure.includes('10.0.0.2:50052,10.0.0.3:50052'));
    const model = { path: '/m', tokenizerPath: '/t', buffer: 'f32' as const };
    const four = [...HOSTS, { namespace: 'n4', address: '10.0.0.4' }];
    for (const [hosts, workers] of [
      [HOSTS, ['10.0.0.2:9998']],
      [four, ['10.0.0.2:9998', '10.0.0.3:9998', '10.0.0.4:9998']],
    ] as const) {
      const dllama = distributedLlamaSystem('/dllama', model, hosts, WORKLOAD);
      assert.deepEqual(dllama.measure.slice(dllama.measure.indexOf('--workers')), ['--workers', ...workers]);
      assert.equal(dllama.servers.length, workers.length);
      assert.match(dllama.name, new RegExp(`on ${workers.length + 1} hosts`));
    }
  });

  it('reads the figures from the output of each system', () => {
    const timing = { ttft_ms: 500, decode_tokens_per_s: 12.5 };
    const workload = { promptTokens: 128, answerTokens: 64 };
    const speeds = { prefillTokensPerS: 256, decodeTokensPerS: 12.5 };
    assert.deepEqual(parseOdmoe(JSON.stringify({ timing, drafts: null }), workload), { ...speeds, tokensAPass: 1 });
    // 63 tokens behind the first one, in 42 passes.
    const drafts = { proposed: 30, accepted: 21 };
    assert.deepEqual(parseOdmoe(JSON.stringify({ timing, drafts }), workload), { ...speeds, tokensAPass: 1.5 });
    const tests = [
      { n_prompt: 128, n_gen: 0, avg_ts: 90.5 },
      { n_prompt: 0, n_gen: 64, avg_ts: 20.25 },
    ];
    const llama = `warning: something\n${JSON.stringify(tests)}`;
    assert.deepEqual(parseLlamaBench(llama), {
      prefillTokensPerS: 90.5,
      decodeTokensPerS: 20.25,
    });
    const dllama = [
      'Evaluation',
      '   nBatches: 32',
      '    nTokens: 19',
      '   tokens/s: 60.30 (16.58 ms/tok)',
      'Prediction',
      '    nTokens: 109',
      '   tokens/s: 14.02 (71.33 ms/tok)',
    ];
    assert.deepEqual(parseDistributedLlama(`\n${dllama.join('\n')}\n`), {
      prefillTokensPerS: 60.3,
      decodeTokensPerS: 14.02,
    });
  });

  it('takes the decode of llama-bench that begins at the depth asked for, and the prefill of an empty context', () => {
    const tests = [
      { n_prompt: 16, n_gen: 0, n_depth: 0, avg_ts: 90 },
      { n_prompt: 0, n_gen: 8, n_depth: 0, avg_ts: 22 },
      { n_prompt: 16, n_gen: 0, n_depth: 16, avg_ts: 80 },
      { n_prompt: 0, n_gen: 8, n_depth: 16, avg_ts: 20 },
    ];
    const printed = JSON.stringify(tests);
    assert.deepEqual(parseLlamaBench(printed, 16), { prefillTokensPerS: 90, decodeTokensPerS: 20 });
    assert.throws(() => parseLlamaBench(printed, 17), { code: 'USAGE' });
  });

  it("has medians and ranges of the rounds, and decode over llama.cpp's of the same round", () => {
    const run = (decodeTokensPerS: number, tokensAPass?: number): Speeds => ({
      prefillTokensPerS: null,
      decodeTokensPerS,
      ...(tokensAPass !== undefined && { tokensAPass }),
    });
    const odmoe = { system: 'odmoe with drafts', runs: [run(10, 1), run(30, 3), run(12, 2)] };
    const llama = { system: 'llama.cpp RPC', runs: [run(20), run(10), run(8)] };
    assert.deepEqual(lanFigures([odmoe, llama]), [
      {
        system: 'odmoe with drafts',
        decodeTokensPerS: { median: 12, lowest: 10, highest: 30 },
        prefillTokensPerS: null,
        tokensAPass: 2,
        decodeOverLlama: { median: 1.5, lowest: 0.5, highest: 3 },
      },
      {
        system: 'llama.cpp RPC',
        decodeTokensPerS: { median: 10, lowest: 8, highest: 20 },
        prefillTokensPerS: null,
        tokensAPass: null,
        decodeOverLlama: null,
      },
    ]);
    assert.equal(lanFigures([odmoe])[0]?.decodeOverLlama, null);
  });

  it('reports a system that printed no figures', () => {
    assert.throws(() => parseOdmoe('{}', WORKLOAD), { code: 'INTERNAL' });
    for (const printed of ['[]', 'out of memory']) assert.throws(() => parseLlamaBench(printed), { code: 'USAGE' });
    assert.throws(() => parseDistributedLlama('out of memory'), { code: 'USAGE' });
  });

  it('sends the declared number of token ids', () => {
    assert.equal(promptIds(300).length, 300);
    assert.ok(promptIds(300).every((id) => id >= 3 && id < 256));
  });
});

describe('a process of odmoe bench peers', () => {
  const node = (code: string, interrupted = new AbortController().signal): RunningProcess =>
    new RunningProcess('a program', [process.execPath, '-e', code], interrupted);
  const STAYS = 'setInterval(() => 0, 1000); console.log("up")';

  it('stops every wait for it when the comparison is interrupted, and is then ended by SIGTERM', async () => {
    const controller = new AbortController();
    const stays = node(STAYS, controller.signal);
    const waits = [stays.untilReady(() => false), stays.untilDone()];
    controller.abort();
    for (const wait of waits) await assert.rejects(wait, { name: 'AbortError' });
    await stays.stop();
    const late = node(STAYS, controller.signal);
    await assert.rejects(late.untilDone(), { name: 'AbortError' });
    await late.stop();
  });

  it('stops every wait for it when a signal has ended it', async () => {
    const killed = 'process.kill(process.pid, "SIGKILL")';
    const failure = { code: 'USAGE', message: /^a program was ended by SIGKILL; it wrote nothing/ };
    const processes = [node(killed), node(killed)] as const;
    await assert.rejects(
      processes[0].untilReady(() => false),
      failure,
    );
    await assert.rejects(processes[1].untilDone(), failure);
    for (const each of processes) await each.stop();
  });

  it('fails with the error of odmoe, or else with the output of the process', async () => {
    const named = node('console.error("odmoe: no pack [MODEL_NOT_FOUND]"); process.exitCode = 3');
    await assert.rejects(
      named.untilReady(() => false),
      { code: 'MODEL_NOT_FOUND', message: /ended with status 3.*no pack/ },
    );
    await assert.rejects(node('console.log("what"); process.exit(1)').untilDone(), { code: 'USAGE', message: /what$/ });
    const none = new RunningProcess('a program', ['/no/such/program'], new AbortController().signal);
    await assert.rejects(
      none.untilReady(() => false),
      { code: 'USAGE', message: /could not be started/ },
    );
    await none.stop();
  });

  it('is killed where it does not stop by itself', async () => {
    const deaf = node(`process.on('SIGTERM', () => 0); ${STAYS}`);
    await deaf.untilReady((printed) => printed.includes('up'));
    await deaf.stop(1);
    await assert.rejects(deaf.untilDone(), { message: /was ended by SIGKILL/ });
  });
});

describe('the peer files for odmoe bench peers', () => {
  it('are complete for each peer, or absent', () => {
    requireWhole({ model: 'm' });
    requireWhole({ model: 'm', llamaBin: 'l', gguf: 'g' });
    assert.throws(() => requireWhole({ model: 'm', llamaBin: 'l' }), { code: 'USAGE' });
    assert.throws(() => requireWhole({ model: 'm', dllama: 'd', dllamaModel: 'x' }), { code: 'USAGE' });
  });

  it('are checked before anything starts', async () => {
    const tiny = { layers: 1, experts: 1, activated: 1, hidden: 64, intermediate: 96, shards: 1 };
    const setting = { ...tiny, codec: codecSetting('raw', null) };
    await assert.rejects(requireGivenFiles({ model: '/no/such' }, 1, 1), { code: 'MODEL_NOT_FOUND' });
    await withSyntheticPack(setting, new AbortController().signal, async ({ directory }) => {
      const refused = async (flags: object, message: RegExp): Promise<void> => {
        await assert.rejects(requireGivenFiles({ model: directory, ...flags }, 31, 64), { code: 'USAGE', message });
      };
      await requireGivenFiles({ model: directory, dllama: process.execPath, dllamaModel: process.execPath }, 31, 64);
      await assert.rejects(requireGivenFiles({ model: directory }, 32, 64), { code: 'USAGE', message: /vocabulary/ });
      await assert.rejects(requireGivenFiles({ model: directory }, 31, 65), { code: 'USAGE', message: /65 positions/ });
      await refused({ llamaBin: '/no/such' }, /--llama-bin: .no.such.llama-bench.*no such file/);
      await refused({ llamaBin: directory }, /--llama-bin/);
      await refused({ gguf: process.execPath }, /--gguf .*is no GGUF file/);
      await refused({ gguf: directory }, /--gguf: .*not a regular file/);
      await refused({ dllama: directory }, /--dllama: .*not a file/);
      await refused({ dllamaTokenizer: '/no/such' }, /--dllama-tokenizer: .*no such file/);
    });
  });
});

describe('one GGUF file in odmoe and in llama.cpp', () => {
  it('needs the file and no pack, and nothing of the LAN', async () => {
    requireWhole({ gguf: 'g' });
    requireWhole({ gguf: 'g', llamaBin: 'l' });
    const dllama = { dllama: 'd', dllamaModel: 'm', dllamaTokenizer: 't' };
    const refused: GivenFiles[] = [{}, { llamaBin: 'l' }, { gguf: 'g', ...dllama }];
    for (const flags of refused) {
      assert.throws(() => requireWhole(flags), { code: 'USAGE', message: /--gguf alone/ });
    }
    const noGguf = { code: 'USAGE', message: /is no GGUF file/ };
    await assert.rejects(requireLlamaFiles({ gguf: process.execPath }), noGguf);
    await assert.rejects(requireLlamaFiles({ llamaBin: '/no/such' }), { code: 'USAGE', message: /llama-bench/ });
  });

  it('asks llama-bench for the same threads and tokens, from the directory given or from PATH', () => {
    const [program, ...rest] = llamaBenchCommand('/llama', '/m.gguf', WORKLOAD);
    assert.equal(program, '/llama/llama-bench');
    assert.equal(llamaBenchCommand(undefined, '/m.gguf', WORKLOAD)[0], 'llama-bench');
    const behind = (flag: string): string | undefined => rest[rest.indexOf(flag) + 1];
    assert.deepEqual(['-m', '-t', '-p', '-n', '-d'].map(behind), ['/m.gguf', '1', '16', '8', '0,16']);
  });

  it('compares the two turns of each round, not the medians of the engines', () => {
    const round = (odmoe: number, llama: number): Parameters<typeof sameFileEngines>[0][number] => ({
      odmoe: { decodeTokensPerS: odmoe, prefillTokensPerS: 4 * odmoe },
      llama: { decodeTokensPerS: llama, prefillTokensPerS: 2 * llama },
    });
    const [odmoe, llama] = sameFileEngines([round(10, 10), round(3, 2), round(40, 80)]);
    assert.deepEqual(odmoe.decodeOverLlama, { median: 1, lowest: 0.5, highest: 1.5 });
    assert.deepEqual(odmoe.prefillOverLlama, { median: 2, lowest: 1, highest: 3 });
    assert.deepEqual(odmoe.decodeTokensPerS, { median: 10, lowest: 3, highest: 40 });
    assert.deepEqual([llama.prefillTokensPerS.median, llama.decodeOverLlama], [20, null]);
    assert.deepEqual(spreadOf([4, 1, 3, 2]), { median: 2.5, lowest: 1, highest: 4 });
  });
});
