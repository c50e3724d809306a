import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot, type RoleSetting } from '../../shared/config/index.js';
import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from './harness/answers.js';
import type { DaemonExit } from './harness/daemon-process.js';
import type { ProcessCluster } from './harness/process-cluster.js';
import { hasSimulatedCuda, simulatedCuda, type SimulatedDevice } from './harness/simulated-cuda.js';
import { packOf } from './harness/test-models.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 24, logprobs: 300 });
const RUN_LIMIT_MS = 60_000;
/** After so many answers a device that is to be lost has run its kernels many times over. */
const MOST_ANSWERS = 20;

(hasSimulatedCuda('CUDA faults') ? describe : describe.skip)('CUDA devices that fail (simulated)', function () {
  this.timeout(300_000);
  const clusters = answeringClusters('tiny', REQUEST);

  /** One daemon has a GPU, the others run on their processors. */
  async function startWith(onGpu: string, fault: string): Promise<ProcessCluster> {
    return clusters.start('tiny', 2, true, [], {
      flags: (id) => ['--device', id === onGpu ? 'cuda' : 'cpu'],
      environment: (id) => (id === onGpu ? simulatedCuda({ fault }) : {}),
    });
  }

  /**
   * Asks until the device of daemon `id` is lost and the daemon has ended: how many kernels it runs for an answer depends on how
   * much of it the others leave to it.
   */
  async function askUntilLost(running: ProcessCluster, role: RoleSetting, id: string): Promise<void> {
    const { exited } = running.daemon(id);
    let exit: DaemonExit | null = null;
    const noted = exited.then((how) => (exit = how));
    for (let asked = 0; asked < MOST_ANSWERS && exit === null; asked++) {
      assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    }
    assert.deepEqual(await noted, { code: 3, signal: null });
    assert.ok(running.logged('[DEVICE_LOST]').some((line) => line.includes(`odmoe ${role}:`)));
  }

  // "gone": the driver then says what it also says to who opens a device that is not there.
  for (const fault of ['lost:60', 'gone:60']) {
    it(`a worker whose device is lost says so and leaves; the answer is the undisturbed one (${fault})`, async () => {
      const running = await startWith('worker-1', fault);
      await askUntilLost(running, 'worker', 'worker-1');
      assert.ok(running.logged('is lost').length > 0, 'main has noted the loss');
      await running.waitForRoster(1, 1);
      assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    });
  }

  it('a shadow whose device is lost leaves; answers go on without predictions', async () => {
    const running = await startWith('shadow', 'lost:900');
    await askUntilLost(running, 'shadow', 'shadow');
    await running.waitForRoster(2, 0);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
  });

  it('a main whose device is lost fails its requests with that, and ends', async () => {
    const running = await startWith('main', 'lost:900');
    await assert.rejects(running.ask(REQUEST), { code: 'DEVICE_LOST' });
    assert.deepEqual(await running.daemon('main').exited, { code: 3, signal: null });
    assert.ok(running.logged('[DEVICE_LOST]').some((line) => line.includes('odmoe main:')));
  });

  async function startWorkerOn(
    device: SimulatedDevice,
    flags: string[],
  ): Promise<{ status: number | null; stderr: string }> {
    const { status, stderr } = spawnSync(
      process.execPath,
      [
        ...[join(packageRoot(), 'bin', 'odmoe'), 'worker', '--model', await packOf('tiny'), '--id', 'w', '--port', '0'],
        ...['--host', '127.0.0.1', '--discovery', 'static', '--main', '127.0.0.1:1', ...flags],
      ],
      { encoding: 'utf8', timeout: RUN_LIMIT_MS, env: { ...process.env, ...simulatedCuda(device) } },
    );
    return { status, stderr };
  }

  const refusals: [string, SimulatedDevice, string[], RegExp][] = [
    ['too old a driver', { driverVersion: 11000 }, [], /driver.*\[DEVICE_DRIVER_TOO_OLD\]/],
    ['an architecture without code', { capability: '5.0' }, [], /sm_50.*\[DEVICE_ARCHITECTURE_UNSUPPORTED\]/],
    [
      'a budget below the context',
      { contextBytes: 2 ** 26 },
      ['--memory-budget', '32 MiB'],
      /\[DEVICE_OUT_OF_MEMORY\]/,
    ],
    [
      'a device without room',
      { memoryBytes: 66 * 2 ** 20, contextBytes: 2 ** 26 },
      ['--slots', '1024', '--memory-budget', '0'],
      /\[DEVICE_OUT_OF_MEMORY\]/,
    ],
    ['a device that is not there', {}, ['--device', 'cuda:7'], /device 7.*\[DEVICE_UNAVAILABLE\]/],
    ['a device that is gone while it is opened', { fault: 'gone:0' }, [], /\[DEVICE_UNAVAILABLE\]/],
    [
      'a library without code for it',
      { fault: 'no-image' },
      [],
      /no kernel image.*\[DEVICE_ARCHITECTURE_UNSUPPORTED\]/,
    ],
  ];
  for (const [what, device, flags, message] of refusals) {
    it(`${what} is told and ends the daemon with exit status 3`, async () => {
      const { status, stderr } = await startWorkerOn(device, ['--device', 'cuda', ...flags]);
      assert.match(stderr, message);
      assert.equal(status, 3);
    });
  }

  it('give way to the processor where nobody asked for them and they do not hold the model', async () => {
    const command = ['generate', await packOf('demo'), 'A fox', '--max-tokens', '3', '--json'];
    const answer = (device: SimulatedDevice) => {
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        [join(packageRoot(), 'bin', 'odmoe'), ...command],
        { encoding: 'utf8', timeout: RUN_LIMIT_MS, env: { ...process.env, ...simulatedCuda(device) } },
      );
      assert.equal(status, 0, stderr);
      return JSON.parse(stdout) as { token_ids: number[]; nodes: { device: string; device_reason: string }[] };
    };
    const roomy = answer({ contextBytes: 2 ** 26 });
    const narrow = answer({ memoryBytes: 80_000_000, contextBytes: 2 ** 26 });
    assert.match(roomy.nodes[0]?.device ?? '', /^cuda/);
    assert.match(narrow.nodes[0]?.device ?? '', /^cpu/);
    assert.match(narrow.nodes[0]?.device_reason ?? '', /CUDA is not used: .* of the device/);
    assert.deepEqual(narrow.token_ids, roomy.token_ids);
  });

  it('are what doctor finds, and warns of', () => {
    const doctor = (device: SimulatedDevice) => {
      const { status, stdout } = spawnSync(
        process.execPath,
        [join(packageRoot(), 'bin', 'odmoe'), 'doctor', '--json', '--timeout', '200'],
        { encoding: 'utf8', timeout: RUN_LIMIT_MS, env: { ...process.env, ...simulatedCuda(device) } },
      );
      const { checks, cuda } = JSON.parse(stdout) as {
        checks: { name: string; status: string; found: string; advice: string }[];
        cuda: { built: boolean; usable: boolean; reason: string | null; devices: { capability: string }[] };
      };
      const check = checks.find(({ name }) => name === 'CUDA');
      assert.ok(check !== undefined && status !== null);
      return { check, cuda };
    };
    const good = doctor({ capability: '8.7' });
    assert.deepEqual(
      [good.check.status, good.cuda.built, good.cuda.usable, good.cuda.reason],
      ['ok', true, true, null],
    );
    assert.equal(good.cuda.devices[0]?.capability, '8.7');
    const old = doctor({ driverVersion: 11000 });
    assert.deepEqual([old.check.status, old.cuda.usable], ['warn', false]);
    assert.match(old.check.advice, /driver/);
    const foreign = doctor({ capability: '5.0' });
    assert.deepEqual([foreign.check.status, foreign.cuda.usable], ['warn', false]);
    assert.match(foreign.cuda.reason ?? '', /sm_50/);
  });
});
