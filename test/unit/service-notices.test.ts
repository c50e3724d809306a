import assert from 'node:assert/strict';
import { DaemonReport } from '../../engine/daemon/daemon-report.js';
import type { RunningNode } from '../../engine/daemon/running-node.js';
import { sendNotices } from '../../engine/daemon/service-notices.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { Lines } from './log-lines.js';

const SOCKET = '/run/systemd/notify';

describe('the notices of a daemon to its service manager', () => {
  let report: DaemonReport;
  let sent: string[];
  let intervals: number[];
  let ticks: (() => void)[];
  let log: Lines;
  let fault: string | null;

  beforeEach(() => {
    report = new DaemonReport();
    [sent, intervals, ticks, fault] = [[], [], [], null];
    log = new Lines();
  });

  function begin(variables: NodeJS.ProcessEnv): void {
    const every = (ms: number, callback: () => void): Timer => {
      intervals.push(ms);
      ticks.push(callback);
      return { cancel: () => undefined, unref: () => undefined };
    };
    const send = (address: string, message: string): string | null => {
      assert.equal(address, SOCKET);
      sent.push(message);
      return fault;
    };
    sendNotices({ variables, processId: 42, runtime: { every }, report, log, send });
  }

  const tick = (): void => {
    for (const callback of ticks) callback();
  };

  const node = (hasMain?: () => boolean): RunningNode => ({
    address: '0.0.0.0:7602',
    openCounts: () => ({}),
    components: () => [],
    ...(hasMain && { hasMain }),
    stop: async () => undefined,
  });

  it('are none where nobody asks for them', () => {
    begin({ WATCHDOG_USEC: '60000000' });
    assert.deepEqual([sent, intervals], [[], []]);
  });

  it('say once that it is ready, when it waits for main or serves, and what it does at each change', () => {
    begin({ NOTIFY_SOCKET: SOCKET });
    assert.deepEqual(sent.splice(0), ['WATCHDOG=1\nSTATUS=starts\nEXTEND_TIMEOUT_USEC=60000000']);
    tick();
    assert.deepEqual(sent.splice(0), ['WATCHDOG=1\nEXTEND_TIMEOUT_USEC=60000000'], 'a slow start is no stuck one');
    report.waiting('waiting for main: none\nanswers');
    assert.deepEqual(sent.splice(0), ['WATCHDOG=1\nSTATUS=waiting for main: none\\nanswers\nREADY=1']);
    let connected = false;
    report.serving(node(() => connected));
    assert.deepEqual(sent.splice(0), ['WATCHDOG=1\nSTATUS=listens on 0.0.0.0:7602; waits for main']);
    tick();
    assert.deepEqual(sent.splice(0), ['WATCHDOG=1']);
    connected = true;
    tick();
    assert.deepEqual(sent.splice(0), ['WATCHDOG=1\nSTATUS=listens on 0.0.0.0:7602; main is connected']);
    report.stopping('stops: SIGTERM received');
    tick();
    assert.deepEqual(sent, ['WATCHDOG=1\nSTATUS=stops: SIGTERM received\nSTOPPING=1', 'WATCHDOG=1']);
  });

  it('say that main is ready when it serves', () => {
    begin({ NOTIFY_SOCKET: SOCKET });
    sent = [];
    report.serving(node());
    assert.deepEqual(sent, ['WATCHDOG=1\nSTATUS=listens on 0.0.0.0:7602\nREADY=1']);
  });

  it('come twice as often as the watchdog of this process wants them', () => {
    begin({ NOTIFY_SOCKET: SOCKET, WATCHDOG_USEC: '3000000', WATCHDOG_PID: '42' });
    begin({ NOTIFY_SOCKET: SOCKET, WATCHDOG_USEC: '3000000' });
    begin({ NOTIFY_SOCKET: SOCKET, WATCHDOG_USEC: '3000000', WATCHDOG_PID: '41' });
    begin({ NOTIFY_SOCKET: SOCKET, WATCHDOG_USEC: '600000000' });
    begin({ NOTIFY_SOCKET: SOCKET, WATCHDOG_USEC: 'soon' });
    assert.deepEqual(intervals, [1500, 1500, 10_000, 10_000, 10_000]);
  });

  it('that cannot be sent are logged once, until one can', () => {
    fault = 'Connection refused';
    begin({ NOTIFY_SOCKET: SOCKET });
    tick();
    assert.equal(log.warnings.length, 1);
    fault = null;
    tick();
    fault = 'No such file or directory';
    tick();
    assert.equal(log.warnings.length, 2);
  });
});
