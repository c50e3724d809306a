import { join } from 'node:path';
import type { CreateHttpServer, NodeEnvironment } from '../engine/environment/node-environment.js';
import type { HttpSettings, NodeSettings } from '../shared/settings/node-settings.js';
import { packageRoot } from '../shared/base/files/package-root.js';
import type { Logger } from '../shared/base/log/logger.js';
import { validateGenerateRequest } from '../shared/wire/generate-validation.js';
import type { MainComponents } from './assemble-main.js';
import { AUTO_API_KEYS } from '../shared/settings/api-keys.js';
import { type ApiKeys, ownKey, type OwnKey, readApiKeys } from '../http-api/access/api-keys.js';
import { prepareChatFor } from '../http-api/conversation/served-chat.js';
import { HTTP_ROUTES } from '../http-api/dialects/routes.js';
import { readPageFiles } from '../http-api/page-files.js';
import { type HttpApi, requireKeysForOthers, startHttpApi } from '../http-api/start-http-api.js';
import type { LoadedMain } from './load-main.js';

/** An HTTP API that can be started. */
export interface PlannedHttpApi {
  settings: HttpSettings;
  keys: ApiKeys;
  /** Null: main has made no key for itself. */
  ownKey: OwnKey | null;
  createServer: CreateHttpServer;
}

/** Reads who may use main's HTTP API; null: there is to be no HTTP API. Throws CONFIG_INVALID, STORAGE_FULL, STORAGE_FAILED. */
export async function planHttpApi(
  { main, stateDirectory }: NodeSettings,
  environment: Pick<NodeEnvironment, 'createHttpServer' | 'runtime'>,
  log: Logger,
): Promise<PlannedHttpApi | null> {
  const { createHttpServer: createServer, runtime } = environment;
  const settings = main.http;
  if (settings === null || createServer === null) return null;
  const own = settings.apiKeysPath === AUTO_API_KEYS ? await ownKey(stateDirectory, runtime, log) : null;
  const keys = await readApiKeys(own?.path ?? settings.apiKeysPath, process.env, log);
  requireKeysForOthers(settings, keys);
  return { settings, keys, ownKey: own, createServer };
}

/** Serves HTTP clients with main's components. Throws PORT_UNAVAILABLE. */
export async function openHttpApi(
  planned: PlannedHttpApi,
  components: MainComponents,
  loaded: LoadedMain & { environment: NodeEnvironment },
  log: Logger,
): Promise<HttpApi> {
  const { inference } = components;
  const { runtime } = loaded.environment;
  const { tokenizer } = loaded;
  return startHttpApi({
    ...planned,
    routes: HTTP_ROUTES,
    context: {
      model: components.model,
      generate: (request, signal, watch) => inference.generate(validateGenerateRequest(request), signal, watch),
      prepareChat: prepareChatFor(tokenizer, log),
      tokenize: (text, addSpecial, signal) => inference.tokenize(text, addSpecial, signal),
      tokenizeChat: (request, signal) => inference.tokenizeChat(request, signal),
      status: () => components.status(),
      feed: components.feed,
      page: await readPageFiles(join(packageRoot(), 'dist', 'dashboard')),
      metrics: components.metrics,
      machines: components.machines,
      drain: (request) => components.drain(request),
      runtime,
      log,
    },
    trouble: () => inference.trouble,
  });
}
