import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { HttpSettings } from '../../../shared/settings/node-settings.js';
import { TestCluster, type ClusterPlan } from './test-cluster.js';
import { packOf, type TestModel } from './test-models.js';

const NO_LIMITS: HttpSettings = {
  host: '127.0.0.1',
  port: 0,
  isAddressGiven: true,
  hosts: [],
  origins: [],
  apiKeysPath: null,
};

export interface HttpPlan extends Partial<ClusterPlan> {
  /** A chat template (Jinja) that replaces the model's own. */
  chatTemplate?: string;
  apiKeys?: readonly string[];
  http?: Partial<HttpSettings>;
}

/** A cluster in this process that serves HTTP clients over real sockets. Its default model is the demo model. */
export class HttpCluster {
  private constructor(
    readonly cluster: TestCluster,
    /** "http://127.0.0.1:PORT", without a slash behind it. */
    readonly url: string,
    private readonly directory: string,
  ) {}

  static async start({ chatTemplate, apiKeys = [], http = {}, ...plan }: HttpPlan = {}): Promise<HttpCluster> {
    const directory = mkdtempSync(join(tmpdir(), 'odmoe-http-'));
    const { model = 'demo', workers = 2 } = plan;
    const keysPath = join(directory, 'api-keys');
    if (apiKeys.length > 0) writeFileSync(keysPath, `${apiKeys.join('\n')}\n`, { mode: 0o600 });
    const settings = { ...NO_LIMITS, apiKeysPath: apiKeys.length > 0 ? keysPath : null, ...http };
    try {
      const cluster = await TestCluster.start({
        ...plan,
        model,
        workers,
        ...(chatTemplate === undefined
          ? {}
          : { packDirectory: await packWithTemplate(model, chatTemplate, directory) }),
        main: { ...plan.main, main: { ...plan.main?.main, http: settings } },
      });
      const { httpAddress } = cluster.main;
      if (httpAddress === null) throw new Error('main serves no HTTP clients');
      return new HttpCluster(cluster, `http://${httpAddress}`, directory);
    } catch (thrown) {
      rmSync(directory, { recursive: true, force: true });
      throw thrown;
    }
  }

  /** Sends the body as JSON by POST. Without a body it sends a GET. */
  fetch(path: string, body?: unknown, init: RequestInit = {}): Promise<Response> {
    if (body === undefined) return fetch(`${this.url}${path}`, init);
    return fetch(`${this.url}${path}`, {
      method: 'POST',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...init,
      headers: { 'content-type': 'application/json', ...(init.headers as Record<string, string> | undefined) },
    });
  }

  /** Idempotent. */
  async stop(): Promise<void> {
    await this.cluster.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** A copy of the model's pack with another chat template. */
async function packWithTemplate(model: TestModel, template: string, parent: string): Promise<string> {
  const copy = join(parent, 'pack');
  cpSync(await packOf(model), copy, { recursive: true });
  writeFileSync(join(copy, 'chat_template.jinja'), template);
  return copy;
}
