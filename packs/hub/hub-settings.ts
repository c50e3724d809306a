import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { readFailure } from '../../shared/base/files/read-file.js';

const DEFAULT_ENDPOINT = 'https://huggingface.co';
/** Values of HF_HUB_OFFLINE that mean yes, as the hub's own library reads them. */
const TRUE_WORDS: ReadonlySet<string> = new Set(['1', 'ON', 'YES', 'TRUE']);

/** The settings of the hub in the environment. The names of the variables and their order are those of the hub's own library. */
export interface HubSettings {
  /** Base address, without a slash at its end. */
  readonly endpoint: string;
  /** Directory of the hub's own library with downloaded models. */
  readonly cacheDirectory: string;
  /** HF_TOKEN; null: it is not set, and the token may stand in the file `tokenPath`. */
  readonly token: string | null;
  readonly tokenPath: string;
  /** True: nothing may be asked of the hub. */
  readonly isOffline: boolean;
}

/**
 * Reads the environment. Empty variables count as absent. Pure.
 * @throws CONFIG_INVALID if HF_ENDPOINT is no address by http or https
 */
export function hubSettings(variables: NodeJS.ProcessEnv, homeDirectory: string): HubSettings {
  const cacheHome = given(variables, 'XDG_CACHE_HOME') ?? join(homeDirectory, '.cache');
  const hubHome = withHome(given(variables, 'HF_HOME'), homeDirectory) ?? join(cacheHome, 'huggingface');
  const cache = given(variables, 'HF_HUB_CACHE') ?? given(variables, 'HUGGINGFACE_HUB_CACHE');
  return {
    endpoint: checkedEndpoint(given(variables, 'HF_ENDPOINT') ?? DEFAULT_ENDPOINT),
    cacheDirectory: withHome(cache, homeDirectory) ?? join(hubHome, 'hub'),
    token: given(variables, 'HF_TOKEN'),
    tokenPath: withHome(given(variables, 'HF_TOKEN_PATH'), homeDirectory) ?? join(hubHome, 'token'),
    isOffline: TRUE_WORDS.has((given(variables, 'HF_HUB_OFFLINE') ?? '').toUpperCase()),
  };
}

/** The token to send, and where it stands, for messages. */
export interface HubToken {
  readonly secret: string;
  readonly origin: string;
}

/** The token of the environment or of its file; null: there is none. @throws STORAGE_FAILED, CONFIG_INVALID */
export async function readHubToken({ token, tokenPath }: HubSettings): Promise<HubToken | null> {
  if (token !== null) return checkedToken(token, 'HF_TOKEN');
  try {
    const text = (await readFile(tokenPath, 'utf8')).trim();
    return text === '' ? null : checkedToken(text, tokenPath);
  } catch (thrown) {
    if (['ENOENT', 'ENOTDIR'].includes(systemErrorCode(thrown))) return null;
    throw readFailure(thrown, tokenPath, {
      missing: 'STORAGE_FAILED',
      invalid: 'CONFIG_INVALID',
      remedy: 'log in again',
    });
  }
}

/** A token with other characters could not be sent, and the error of the HTTP library would show it. */
function checkedToken(secret: string, origin: string): HubToken {
  if (/^[\x21-\x7e]+$/.test(secret)) return { secret, origin };
  throw new OdmoeError(
    'CONFIG_INVALID',
    `${origin}: is no token of the hub: it has blanks or letters that no token has; copy it again`,
  );
}

function checkedEndpoint(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && ['http:', 'https:'].includes(url.protocol) && url.username === '' && url.search === '') {
    return url.href.replace(/\/+$/, '');
  }
  throw new OdmoeError(
    'CONFIG_INVALID',
    'HF_ENDPOINT: is no address of a hub; give one such as https://huggingface.co',
  );
}

function given(variables: NodeJS.ProcessEnv, name: string): string | null {
  const value = variables[name]?.trim() ?? '';
  return value === '' ? null : value;
}

/** The path with the home directory in place of a tilde at its begin. */
function withHome(path: string | null, homeDirectory: string): string | null {
  if (path === null) return null;
  return path === '~' || path.startsWith('~/') ? join(homeDirectory, path.slice(1)) : path;
}
