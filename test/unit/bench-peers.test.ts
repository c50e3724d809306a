import assert from 'node:assert/strict';
import {
  distributedLlamaSystem,
  llamaSystem,
  odmoeSystem,
  parseDistributedLlama,
  parseLlamaBench,
  parseOdmoe,
  promptIds,
} from '../../bench/peers/systems.js';
import { parseDaemonFlags } from '../../shared/daemon/parse-daemon-flags.js';

const HOSTS = [1, 2, 3].map((number) => ({ namespace: `n${number}`, address: `10.0.0.${number}` }));
const WORKLOAD = { promptTokens: 16, answerTokens: 8, threads: 1 };

describe('odmoe bench peers', () => {
  it('starts daemons with flags that they accept, each on the address of its host', () => {
    const { servers } = odmoeSystem('/packs/p', HOSTS, WORKLOAD);
    const settings = servers.map(({ command }) => {
      const [role, ...flags] = command.slice(2);
      assert.ok(role === 'main' || role === 'worker');
      const request = parseDaemonFlags(role, flags);
      assert.ok(request.kind === 'run');
      return request.settings;
    });
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
  });

  it('gives the peers every other host as a worker, as far as they take it', () => {
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

  it('reads the figures that each system prints', () => {
    const odmoe = JSON.stringify({ timing: { ttft_ms: 500, decode_tokens_per_s: 12.5 } });
    assert.deepEqual(parseOdmoe(odmoe, 128), { prefillTokensPerS: 256, decodeTokensPerS: 12.5 });
    const tests = [
      { n_prompt: 128, n_gen: 0, avg_ts: 90.5 },
      { n_prompt: 0, n_gen: 64, avg_ts: 20.25 },
    ];
    const llama = `warning: something\n${JSON.stringify(tests)}`;
    assert.deepEqual(parseLlamaBench(llama), { prefillTokensPerS: 90.5, decodeTokensPerS: 20.25 });
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

  it('says so where a system printed no figures', () => {
    assert.throws(() => parseOdmoe('{}', 1), { code: 'INTERNAL' });
    assert.throws(() => parseLlamaBench('[]'), { code: 'INTERNAL' });
    assert.throws(() => parseDistributedLlama('out of memory'), { code: 'INTERNAL' });
  });

  it('asks with as many token ids as it says', () => {
    assert.equal(promptIds(300).length, 300);
    assert.ok(promptIds(300).every((id) => id >= 3 && id < 256));
  });
});
