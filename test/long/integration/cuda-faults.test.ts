import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import type { RoleSetting } from '../../../shared/settings/setting-choices.js';
import { answeringClusters } from '../../integration/harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from '../../integration/harness/answers.js';
import type { DaemonExit } from '../../integration/harness/test-daemon.js';
import type { ProcessCluster } from '../../integration/harness/process-cluster.js';
import { hasSimulatedCuda, simulatedCuda, type SimulatedDevice } from '../../integration/harness/simulated-cuda.js';
import { packOf } from '../../integration/harness/test-models.js';

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

  it('a worker with a lost device reports it and leaves; the answer is unchanged', async () => {
    const running = await startWith('worker-1', 'lost:60');
    await askUntilLost(running, 'worker', 'worker-1');
    assert.ok(running.logged('is lost').length > 0, 'main has noted the loss');
    await running.waitForRoster(1, 1);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
  });

  async function startWorkerOn(
    device: SimulatedDevice,
    flags: string[],
  ): Promise<{ status: number | null; stderr: string }> {
    const { status, stderr } = spawnSync(
      process.execPath,
      [
        join(packageRoot(), 'bin', 'odmoe'),
        'worker',
        '--model',
        await packOf('tiny'),
        '--id',
        'w',
        '--port',
        '0',
        '--host',
        '127.0.0.1',
        '--discovery',
        'static',
        '--main',
        '127.0.0.1:1',
        ...flags,
      ],
      { encoding: 'utf8', timeout: RUN_LIMIT_MS, env: { ...process.env, ...simulatedCuda(device) } },
    );
    return { status, stderr };
  }

  const refusals: [string, SimulatedDevice, string[], RegExp][] = [
    ['too old a driver', { driverVersion: 11000 }, [], /driver.*\[DEVICE_DRIVER_TOO_OLD\]/],
  ];
  for (const [what, device, flags, message] of refusals) {
    it(`${what} is reported and ends the daemon with exit status 3`, async () => {
      const { status, stderr } = await startWorkerOn(device, ['--device', 'cuda', ...flags]);
      assert.match(stderr, message);
      assert.equal(status, 3);
    });
  }

  it('are found by odmoe doctor, which warns of them', () => {
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
