import { render } from 'preact';
import { startFeed } from './feed/event-feed.js';
import { PageFrame } from './frame/frame.js';
import { applyTheme, rememberedTheme } from './elements/theme.js';

applyTheme(rememberedTheme());
const page = document.getElementById('page');
if (page === null) throw new Error('index.html has no element with the id "page"');
startFeed();
render(<PageFrame />, page);
