import { join } from 'node:path';

/** Name of the credential by which a service manager hands a daemon its join token. */
export const TOKEN_CREDENTIAL = 'join';

/** The text in place of a token that has done its work. */
export const NO_TOKEN = 'used';

/** The file with that credential, for a daemon that a service manager has started with credentials; null: it has none. */
export function tokenCredentialPath(variables: NodeJS.ProcessEnv): string | null {
  const directory = variables['CREDENTIALS_DIRECTORY'];
  return directory?.startsWith('/') === true ? join(directory, TOKEN_CREDENTIAL) : null;
}
