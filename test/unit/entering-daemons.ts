import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { enterCluster, type EnteredCluster, type EntryContext } from '../../engine/daemon/enter-cluster.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { startNewMain, StoredMain } from './stored-main.js';

/** Daemons that enter clusters, each on a host of its own: a directory. */
export class EnteringDaemons {
  readonly directory = mkdtempSync(join(tmpdir(), 'odmoe-entering-'));
  /** That of startHome, or of a test. It is stopped at the end. */
  main: StoredMain | null = null;
  /** What the daemons have told their users. */
  said: string[] = [];
  /** What the service managers of those that entered by a code have been told last. */
  states: string[] = [];
  private readonly tell: EntryContext['say'] = (text) => void this.said.push(text);
  private readonly leaves: (() => Promise<void>)[] = [];

  async end(): Promise<void> {
    await this.leaveAll();
    await this.main?.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }

  settingsOf(role: RoleSetting, flags: Parameters<typeof resolveNodeSettings>[2], host = 'jetson'): NodeSettings {
    const here = { hostname: host, addresses: [], processId: 42, stateHome: join(this.directory, host) };
    return resolveNodeSettings(role, defaultClusterConfig(), { model: 'pack', ...flags }, here);
  }

  stateOf(host: string, cluster: string): string {
    return join(this.directory, host, 'odmoe', cluster);
  }

  async enter(
    settings: NodeSettings,
    { variables = {}, abandoned = new AbortController().signal, say = this.tell, runtime = RUNTIME } = {},
  ): Promise<EnteredCluster> {
    const log = new Lines();
    const context = { runtime, log, abandoned, say, device: () => 'Orin', variables };
    const entered = await enterCluster(settings, context);
    this.leaves.push(() => entered.leave());
    return entered;
  }

  /** Enters with the main that was started before ended. */
  async enterAgain(settings: NodeSettings): Promise<EnteredCluster> {
    await this.leaveAll();
    return this.enter(settings);
  }

  /** The mains that entered have ended. */
  async leaveAll(): Promise<void> {
    for (const leave of this.leaves.splice(0)) await leave();
  }

  /** Enters by a code, which the operator types. */
  enterByCode(settings: NodeSettings): Promise<EnteredCluster> {
    return this.enter(settings, {
      say: (text, state = text) => {
        this.said.push(text);
        this.states.push(state);
        const code = /odmoe accept (\d{6})/.exec(text)?.[1];
        if (code !== undefined) void this.main?.desk.accept(code);
      },
    });
  }

  async startHome(): Promise<string> {
    this.main = await startNewMain(this.stateOf('box', 'home'));
    return this.main.server.address;
  }

  async token(role: 'worker' | 'shadow' = 'worker'): Promise<string> {
    assert.ok(this.main !== null);
    return (await this.main.desk.createToken({ role, uses: 1, lifeMs: 60_000 })).text;
  }
}
