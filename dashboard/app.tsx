import { render } from 'preact';
import { noticeSilence, startFeed } from './feed/event-feed.js';
import { logInByLink } from './feed/session.js';
import { PageFrame } from './frame/frame.js';
import { applyTheme, rememberedTheme } from './elements/theme.js';

applyTheme(rememberedTheme());
void logInByLink();
const page = document.getElementById('page');
if (page === null) throw new Error('index.html has no element with the id "page"');
startFeed();
document.addEventListener('visibilitychange', noticeSilence);
render(<PageFrame />, page);
