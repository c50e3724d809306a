import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runtime } from '../../cli/client/process-runtime.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const TOKENIZER_CONFIG = 'tokenizer_config.json';

/** The demo model as a pack, also with chat templates that are not its own; those are removed by `dispose`. */
export class HostilePacks {
  private readonly made: string[] = [];

  /** Throws as packForServing. */
  async withTemplate(template: string | undefined, signal: AbortSignal): Promise<string> {
    const model = join(packageRoot(), 'models', 'demo');
    if (template === undefined) return packForServing(model, null, runtime, () => undefined, signal);
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-limits-'));
    this.made.push(directory);
    const checkpoint = join(directory, 'model');
    await cp(model, checkpoint, { recursive: true });
    const config = JSON.parse(await readFile(join(model, TOKENIZER_CONFIG), 'utf8')) as Record<string, unknown>;
    config['chat_template'] = template;
    await writeFile(join(checkpoint, TOKENIZER_CONFIG), JSON.stringify(config));
    return packForServing(checkpoint, join(directory, 'packs'), runtime, () => undefined, signal);
  }

  async dispose(): Promise<void> {
    await Promise.all(this.made.map((directory) => rm(directory, { recursive: true })));
  }
}
